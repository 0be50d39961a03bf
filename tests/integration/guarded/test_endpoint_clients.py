"""A framework that speaks the OpenAI dialect works against the endpoint unchanged, beside the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.integration.guarded.application import KEYS, QUESTION, Guarded

pytestmark = pytest.mark.ray
_SAID = "The shown sentence says it [1].\n\nSources:\n[1] "


def agent(client: openai.AsyncOpenAI, model: str = "resin") -> Agent[None, str]:
    """As its documentation has it for any endpoint of this dialect."""
    return Agent(
        OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client)),
        instructions="Answer in one sentence.",
        model_settings={"temperature": 0.2, "max_tokens": 300, "seed": 1},
    )


@pytest.fixture
async def client(guarded: Guarded) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{guarded.endpoint.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEYS["ask"], max_retries=0) as made:
        yield made


async def test_an_agent_gets_the_answer_and_what_it_cost(client: openai.AsyncOpenAI) -> None:
    result = await agent(client).run(QUESTION)
    assert result.output.startswith(_SAID)
    usage = result.usage() if callable(result.usage) else result.usage
    assert usage.input_tokens > 0 and usage.output_tokens > 0


async def test_an_agent_streams_the_same_answer_piece_by_piece(client: openai.AsyncOpenAI) -> None:
    whole = (await agent(client).run(QUESTION)).output
    async with agent(client).run_stream(QUESTION) as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 2
    assert "".join(pieces) == whole


async def test_a_conversation_goes_on_with_its_last_question(client: openai.AsyncOpenAI) -> None:
    first = await agent(client).run("Who sells lamps in the harbour?")
    second = await agent(client).run(QUESTION, message_history=first.all_messages())
    last = second.all_messages()[-1]
    assert isinstance(last, ModelResponse) and last.finish_reason == "stop"
    assert second.output.startswith(_SAID)


@pytest.mark.parametrize(("model", "key", "status"), [("none", "ask", 404), ("resin", "traces", 403)])
async def test_an_agent_sees_why_it_was_refused(guarded: Guarded, model: str, key: str, status: int) -> None:
    url = f"{guarded.endpoint.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEYS[key], max_retries=0) as client:
        with pytest.raises(ModelHTTPError) as caught:
            await agent(client, model).run(QUESTION)
    assert caught.value.status_code == status
    assert isinstance(caught.value.body, dict) and caught.value.body["status"] == status


async def test_the_official_client_is_let_in_with_a_key_only(guarded: Guarded, client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["resin"]
    async with client.with_options(api_key=KEYS["stranger"]) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
