"""Between Resin's requests and the rows of Ray Data's vLLM processor. Pure: no Ray, no vLLM, no model.

What is sent is taken from the wire form of the HTTP client, so that both engines are asked the same.

Columns of Ray 2.60's processor: in `tokenized_prompt` and `sampling_params`; out `generated_text`,
`num_input_tokens`, `num_generated_tokens`, `time_taken_llm`, and `__inference_error__`, which is empty unless the row
failed. It gives no finish reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from resin_core.llm.pending import FAILED, TOO_LONG, refusal
from resin_core.llm.protocol import Reply, Request
from resin_core.llm.wire import arguments
from resin_core.records import Usage

ERROR = "__inference_error__"
OUTPUTS = (
    "doc_id",
    "key",
    "max_tokens",
    "generated_text",
    "num_input_tokens",
    "num_generated_tokens",
    "time_taken_llm",
)
_ERROR_CHARS = 500
_TOO_LONG = "context-length: "


class Outcome(NamedTuple):
    """What came of one request; `failure` is empty, or says why the engine could not answer it."""

    doc_id: str
    key: str
    reply: Reply
    failure: str


def messages(request: Request) -> list[dict[str, str]]:
    """The chat messages as they go over the wire."""
    return list(arguments(request, "", 0)["messages"])


def sampling(request: Request, seed: int) -> dict[str, Any]:
    """Arguments of vLLM's SamplingParams.

    Every row has the same fields, and the schema is text: in one Arrow column two schemas with different properties
    would each be given the other's, as nulls, and vLLM would then compile neither as it was meant.
    """
    sent = arguments(request, "", seed)
    given: dict[str, Any] = {
        "max_tokens": sent["max_tokens"],
        "temperature": float(sent["temperature"]),
        "frequency_penalty": float(sent.get("frequency_penalty", 0.0)),
        "seed": sent["seed"],
        "stop": sent.get("stop", []),
    }
    schema = None if request.json_schema is None else json.dumps(request.json_schema, ensure_ascii=False)
    return {**given, "structured_outputs": None if schema is None else {"json": schema}}


def engine_row(
    doc_id: str, key: str, request: Request, seed: int, tokens: list[int], context_tokens: int | None
) -> dict[str, Any]:
    """One row for the engine. A prompt that does not fit with its reply is marked as failed: the engine passes such
    a row on untouched, while servers refuse it and vLLM itself would cut the reply short without a word."""
    error = ""
    if context_tokens is not None and len(tokens) + request.max_tokens > context_tokens:
        error = (
            f"{_TOO_LONG}prompt {request.prompt_id!r} takes {len(tokens)} tokens and its reply up to"
            f" {request.max_tokens}, but llm.context_tokens is {context_tokens}"
        )
    return {
        "doc_id": doc_id,
        "key": key,
        "max_tokens": request.max_tokens,
        "tokenized_prompt": [] if error else tokens,
        "sampling_params": sampling(request, seed),
        ERROR: error,
    }


def output_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The processor's postprocessing: only what `outcome` reads. Failed rows bypass it and keep all their columns."""
    return {name: row[name] for name in OUTPUTS}


def outcome(row: Mapping[str, Any], model: str, context_tokens: int | None) -> Outcome:
    """The reply of one output row, under the name `model`, or a refusal in its place."""
    doc_id, key, error = row["doc_id"], row["key"], row.get(ERROR) or ""
    if error.startswith(_TOO_LONG):
        return Outcome(doc_id, key, refusal(TOO_LONG, error.removeprefix(_TOO_LONG), model), "")
    if error:
        error = " ".join(error.split())[:_ERROR_CHARS]
        return Outcome(doc_id, key, refusal(FAILED, error, model), error)
    prompt, completion = int(row["num_input_tokens"]), int(row["num_generated_tokens"])
    # A reply that happens to end with its very last token is taken for a cut one; its JSON is whole and read as such.
    cut = completion >= row["max_tokens"] or (context_tokens is not None and prompt + completion >= context_tokens)
    reply = Reply(
        text=row["generated_text"] or "",
        finish_reason="length" if cut else "stop",
        model=model,
        usage=Usage(llm_calls=1, prompt_tokens=prompt, completion_tokens=completion),
        seconds=max(0.0, float(row["time_taken_llm"])),
    )
    return Outcome(doc_id, key, reply, "")
