"""Generations and indexes behind one endpoint: swapped under load, rolled back, side by side; and replicas that die."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import read_current, write_current
from resin_core.store.reader import IndexReader
from tests.benchmarks.killing import processes
from tests.benchmarks.serving.load import Load
from tests.integration.endpoints import Endpoint, endpoint, ray_for_serving
from tests.integration.indexing_runs import index, text_of, write_corpus
from tests.scripted_llm import ScriptedServer
from tests.scripted_llm.indexing_replies import play

pytestmark = pytest.mark.ray
TWO = ("planner", "retriever", "composer", "encoder")


@dataclass
class Place:
    """An index with several generations, and another beside it. `passages` holds each generation's own."""

    folder: IndexFolder
    other: Path
    passages: dict[str, set[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.script(play)
        yield server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, model: ScriptedServer) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("generations")
    with ray_for_serving(cpus=16):
        found = Place(IndexFolder.at(folder / "index"), folder / "other")
        for edition in range(2):
            texts = {f"d{n:03}": text_of(n, 4).replace("tonnes", f"tonnes in edition {edition}") for n in range(4)}
            index(model, write_corpus(folder / "c.jsonl", texts), folder / "index")
            reader = IndexReader.open(folder / "index")
            found.passages[reader.generation] = {passage.passage_id for passage in reader.iter_passages()}
        index(model, write_corpus(folder / "o.jsonl", {"notes": text_of(40)}), found.other)
        yield found


@pytest.fixture(scope="module")
def served(model: ScriptedServer, place: Place) -> Iterator[Endpoint]:
    settings = [f"serving.{part}.{bound}_replicas=2" for part in TWO for bound in ("min", "max")]
    settings += [f"serving.indexes.notes={place.other}", "serving.max_requests=500"]
    with endpoint(model.base_url, place.folder.root, settings) as found:
        yield found


async def test_no_answer_fails_or_mixes_generations_while_they_are_swapped(served: Endpoint, place: Place) -> None:
    going = True
    async with Load(served.url) as load:

        async def client() -> None:
            while going:
                await load.ask()

        clients = [asyncio.create_task(client()) for _ in range(4)]
        generations = list(place.passages)
        for swap in range(10):
            write_current(place.folder, generations[swap % 2])
            await asyncio.sleep(0.7)
        going = False
        await asyncio.gather(*clients)
    assert [asked.error for asked in load.done if not asked.ok] == []
    seen = set()
    for asked in load.done:
        used = {item["passage_id"] for part in ("evidence", "pool", "citations") for item in asked.body[part]}
        assert used
        assert used <= place.passages[asked.body["generation"]]
        seen.add(asked.body["generation"])
    assert seen == set(generations)


async def test_a_generation_that_cannot_be_opened_is_not_served(served: Endpoint, place: Place) -> None:
    good = list(place.passages)[1]
    write_current(place.folder, good)
    await asyncio.sleep(1)
    write_current(place.folder, "g9-0123456789ab")
    try:
        await asyncio.sleep(1)
        answer = served.post("/v1/answer", {"question": "What does Mill 0-1 weigh?"})
        assert (answer.status_code, answer.json()["generation"]) == (200, good)
    finally:
        write_current(place.folder, good)


def test_two_indexes_do_not_mix(served: Endpoint, place: Place) -> None:
    question = "What weighs 41 tonnes?"
    notes = served.post("/v1/answer", {"question": question, "index": "notes"}).json()
    assert {item["doc_id"] for item in notes["pool"]} == {"notes"}
    assert (notes["index"], notes["generation"]) == ("notes", read_current(IndexFolder.at(place.other)))
    own = served.post("/v1/answer", {"question": question}).json()
    assert own["index"] == "default"
    assert "notes" not in {item["doc_id"] for item in own["pool"]}
    assert {entry["id"] for entry in served.get("/v1/models").json()["data"]} == {"resin", "resin@notes"}
    assert served.get(f"/v1/traces/{notes['trace_id']}", params={"index": "notes"}).status_code == 200
    assert served.get(f"/v1/traces/{notes['trace_id']}").status_code == 404


async def test_replicas_may_die_under_load(served: Endpoint) -> None:
    going = True
    async with Load(served.url) as load:
        asking = asyncio.create_task(load.rate(8.0, lambda: going))
        for part in TWO:
            await asyncio.sleep(1)
            titles = [process for process in processes.below(os.getpid()) if f"resin:{part}" in process.title]
            assert len(titles) >= 2, "there are two to kill one of"
            os.kill(titles[0].pid, signal.SIGKILL)
        await asyncio.sleep(4)
        going = False
        await asking
    assert len(load.done) > 40
    assert [asked.error for asked in load.done if not asked.ok] == []
