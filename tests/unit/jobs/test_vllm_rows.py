"""Requests as engine rows and output rows as replies: nothing lost in Arrow, nothing by position, failures named."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from jobs import vllm_rows
from jobs.vllm_processor import _ROWS
from resin_core.llm.pending import FAILED, TOO_LONG
from resin_core.llm.protocol import Message, Request
from resin_core.llm.wire import arguments
from resin_core.prompts import extraction, index_document, passages, units
from resin_core.records import Usage

LINES = [extraction.Line(1, "# Head", heading=True), *(extraction.Line(n, f"Lamp {n} is {{red}}.") for n in (2, 3, 4))]
SCHEMAS = {
    "index_document": index_document.schema(LINES, 2),
    "passages": passages.schema(LINES),
    "units": units.schema(LINES, 2),
}
# What xgrammar turns into a grammar; vLLM refuses or silently ignores more than this.
KNOWN = {"type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"}


def request(schema: str = "index_document", **values: Any) -> Request:
    given = {
        "messages": index_document.PROMPT.messages("title: x\n[1] A \ud800 {0} \u2028 line."),
        "max_tokens": 90,
        "json_schema": SCHEMAS[schema],
        "prompt_id": "index_document@1",
    }
    return Request(**given | values)


def output(**values: Any) -> dict[str, Any]:
    row = {
        "doc_id": "d", "key": "k", "max_tokens": 90, "generated_text": '{"units":{}}', "num_input_tokens": 40,
        "num_generated_tokens": 6, "time_taken_llm": 0.25, vllm_rows.ERROR: "",
    }  # fmt: skip
    return row | values


def test_both_engines_are_sent_the_same() -> None:
    asked = request(temperature=0.4, frequency_penalty=0.2, stop=("END",))
    sent = arguments(asked, "m", 7)
    given = vllm_rows.sampling(asked, 7)
    assert vllm_rows.messages(asked) == sent["messages"]
    assert "\ud800" not in vllm_rows.messages(asked)[-1]["content"]
    for name in ("max_tokens", "temperature", "frequency_penalty", "seed", "stop"):
        assert given[name] == sent[name]
    schema = sent["response_format"]["json_schema"]["schema"]
    assert json.loads(given["structured_outputs"]["json"]) == schema


def test_the_order_of_a_schema_stays() -> None:
    """Engines write fields in the order of the schema's properties."""
    text = vllm_rows.sampling(request(), 7)["structured_outputs"]["json"]
    assert list(json.loads(text)["properties"]) == ["units", "passages"]
    assert list(json.loads(text)["properties"]["units"]["properties"]) == ["2", "3", "4"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_hold_only_what_grammars_are_made_of(name: str) -> None:
    def check(schema: dict[str, Any]) -> None:
        assert schema.keys() <= KNOWN
        for part in schema.get("properties", {}).values():
            check(part)
        if "items" in schema:
            check(schema["items"])
        if schema["type"] == "object":
            assert schema["properties"], "an object without properties would let the model write anything"

    check(SCHEMAS[name])


def test_rows_with_different_schemas_keep_them_in_one_arrow_table() -> None:
    asked = [request("index_document"), request("passages"), request(json_schema=None), request("units")]
    rows = [vllm_rows.engine_row("d", str(n), one, 7, [1, 2], None) for n, one in enumerate(asked)]
    back = pa.Table.from_pylist(rows, schema=_ROWS).to_pylist()
    assert back == rows
    assert [row["sampling_params"]["structured_outputs"] is None for row in back] == [False, False, True, False]


def test_a_row_carries_its_key_and_a_prompt_that_fits_exactly() -> None:
    row = vllm_rows.engine_row("d1", "k1", request(), 7, list(range(10)), 100)
    assert (row["doc_id"], row["key"], row["max_tokens"]) == ("d1", "k1", 90)
    assert (row["tokenized_prompt"], row[vllm_rows.ERROR]) == (list(range(10)), "")


def test_a_prompt_one_token_too_long_is_refused_as_servers_do() -> None:
    row = vllm_rows.engine_row("d1", "k1", request(), 7, list(range(11)), 100)
    assert row["tokenized_prompt"] == []
    found = vllm_rows.outcome(row, "m", 100)
    assert (found.doc_id, found.key, found.failure) == ("d1", "k1", "")
    assert (found.reply.finish_reason, found.reply.usage) == (TOO_LONG, Usage())
    assert "11 tokens" in found.reply.text and "90" in found.reply.text and "context_tokens is 100" in found.reply.text


def test_an_output_row_is_a_reply() -> None:
    found = vllm_rows.outcome(output(), "m", None)
    assert found[:2] == ("d", "k") and found.failure == ""
    assert found.reply.model_dump() == {
        "text": '{"units":{}}', "finish_reason": "stop", "model": "m", "seconds": 0.25,
        "usage": {"llm_calls": 1, "prompt_tokens": 40, "completion_tokens": 6},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "context", "finish"),
    [
        ({"num_generated_tokens": 90}, None, "length"),
        ({"num_generated_tokens": 89}, None, "stop"),
        ({"num_input_tokens": 60, "num_generated_tokens": 40}, 100, "length"),
        ({"num_input_tokens": 60, "num_generated_tokens": 39}, 100, "stop"),
    ],
)
def test_a_reply_that_was_cut_is_known_by_its_length(values: dict[str, int], context: int | None, finish: str) -> None:
    assert vllm_rows.outcome(output(**values), "m", context).reply.finish_reason == finish


@pytest.mark.parametrize("text", ["", None])
def test_a_reply_without_text_is_an_empty_reply(text: str | None) -> None:
    found = vllm_rows.outcome(output(generated_text=text), "m", None)
    assert (found.reply.text, found.failure, found.reply.usage.llm_calls) == ("", "", 1)


def test_a_failed_row_is_a_refusal_with_its_reason() -> None:
    # As Ray gives it: other columns, and none of the result.
    row = {"doc_id": "d", "key": "k", "prompt": "p", vllm_rows.ERROR: "ValueError: no\n  grammar " + "x" * 900}
    found = vllm_rows.outcome(row, "m", None)
    assert found.failure.startswith("ValueError: no grammar") and len(found.failure) == 500
    assert (found.reply.finish_reason, found.reply.text) == (FAILED, found.failure)


def test_a_null_error_is_none() -> None:
    assert vllm_rows.outcome(output(**{vllm_rows.ERROR: None}), "m", None).failure == ""


def test_postprocessing_keeps_what_a_reply_needs_and_drops_the_rest() -> None:
    kept = vllm_rows.output_row({**output(), "prompt": "long", "generated_tokens": [1], "request": "{}"})
    assert vllm_rows.outcome(kept, "m", None).reply.text == '{"units":{}}'
    assert not {"prompt", "generated_tokens", "request"} & kept.keys()


def test_messages_are_the_prompts_own() -> None:
    asked = Request(messages=(Message(role="user", content="{0} %s"),), max_tokens=1)
    assert vllm_rows.messages(asked) == [{"role": "user", "content": "{0} %s"}]
