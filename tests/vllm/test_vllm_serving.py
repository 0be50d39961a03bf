"""The endpoint with a vLLM engine of its own (`ray.serve.llm`), on CPUs: the whole application, over HTTP.

The 0.5B model answers poorly, so nothing here judges what it says: only that planner and composer reach it, that its
tokens are streamed as they come, and that a client that leaves stops it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.integration.endpoints import Endpoint, endpoint, ray_for_serving, until_ready
from tests.integration.indexing_runs import corpus, index
from tests.integration.ray_metrics import samples
from tests.scripted_llm import ScriptedServer
from tests.scripted_llm.indexing_replies import play
from tests.vllm.test_vllm_engine import SETTINGS
from tests.vllm.weights import folder

pytestmark = [pytest.mark.model, pytest.mark.ray, pytest.mark.timeout(1500)]
QUESTION = "What does Mill 0-1 weigh?"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    place = tmp_path_factory.mktemp("served")
    with ray_for_serving():
        with ScriptedServer() as scripted:
            scripted.script(play)
            index(scripted, corpus(place / "c.jsonl", 4), place / "index")
        own = (*SETTINGS, f"llm.vllm.model_path={folder()}", "serving.engine=vllm")
        with endpoint(None, place / "index", (*own, "llm.max_concurrency=4"), ready=False) as found:
            until_ready(found, 400)
            yield found


def test_an_answer_by_way_of_the_engine(served: Endpoint) -> None:
    answered = served.post("/v1/answer", {"question": QUESTION}, timeout_s=300)
    assert answered.status_code == 200, answered.text
    said = answered.json()
    assert said["answer"]
    assert said["evidence"], "the search found something for the hops that the model planned"
    assert said["usage"]["llm_calls"] >= 2
    assert said["usage"]["prompt_tokens"] > 500 and said["usage"]["completion_tokens"] > 10


def test_tokens_come_one_by_one(served: Endpoint) -> None:
    async def streamed() -> list[tuple[float, str]]:
        found = []
        async with (
            served.client(timeout_s=300) as client,
            client.stream("POST", "/v1/answer", json={"question": QUESTION, "stream": True}) as response,
        ):
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    found.append((time.monotonic(), line.removeprefix("event: ")))
        return found

    events = asyncio.run(streamed())
    tokens = [at for at, name in events if name == "token"]
    assert len(tokens) > 3 and events[-1][1] == "done"
    assert tokens[-1] - tokens[0] > 0.05, "all at once is no stream"


def test_a_client_that_leaves_stops_the_engine(served: Endpoint) -> None:
    async def leave() -> None:
        async with (
            served.client(timeout_s=300) as client,
            client.stream("POST", "/v1/answer", json={"question": QUESTION, "stream": True}) as response,
        ):
            async for line in response.aiter_lines():
                if line.startswith("event: token"):
                    return

    asyncio.run(leave())
    end = time.monotonic() + 20
    while running() > 0:
        assert time.monotonic() < end, "the engine still generates for nobody"
        time.sleep(0.5)


def running() -> float:
    """Requests that the engine works on, by its own count among Ray's metrics."""
    found = [sample.value for sample in samples() if sample.name.endswith("vllm_num_requests_running")]
    assert found, "the engine's metrics are not there"
    return sum(found)
