"""A reply as a validated record: strict JSON, else a tolerant reading, else further tries, else one clear error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from resin_core.errors import LLMReplyError
from resin_core.llm.patient import GAVE_UP
from resin_core.llm.protocol import ChatModel, Deadline, Message, Reply, Request
from resin_core.llm.reading import candidates, is_looped, salvaged
from resin_core.records import Usage

T = TypeVar("T", bound=BaseModel)

# Sampling of further tries: at temperature 0 the same prompt gives the same bad reply, or the same loop.
_REPAIR_TEMPERATURE = 0.4
_REPAIR_FREQUENCY_PENALTY = 0.2
_FAULT_CHARS = 200


@dataclass(frozen=True)
class Structured(Generic[T]):
    """A value that fits its response model, and the calls it took.

    `reply` is the one it was read from; `usage` and `seconds` are of all `calls`. `repaired`: it was not strict JSON,
    or not the first reply. `truncated`: the reply was cut off and the value holds what was complete.
    """

    value: T
    reply: Reply
    usage: Usage
    seconds: float
    calls: int
    repaired: bool
    truncated: bool


class _Fault(NamedTuple):
    reason: str
    message: str


async def structured(
    model: ChatModel,
    request: Request,
    response_type: type[T],
    deadline: Deadline | None = None,
    attempts: int = 1,
    accept_truncated: bool = False,
) -> Structured[T]:
    """The reply to `request` as a `response_type`, with up to `attempts` further tries when it does not fit.

    A further try is the same request with a note on what was wrong and other sampling. With `accept_truncated` a reply
    that reached the token cap is accepted when its complete items fit; one that loops never is.

    Raises LLMReplyError with the last reply's fault, its raw text and the usage of all calls; its reason is one of
    empty, truncated, looped, not-json, wrong-schema. Other LLMError kinds and DeadlineError pass through.
    """
    usage, seconds = Usage(), 0.0
    fault, raw = _Fault("empty", "no call was made"), ""
    for call in range(1, attempts + 2):
        asked = request if call == 1 else _again(request, fault)
        try:
            reply = await model.complete(asked, deadline)
        except LLMReplyError as error:
            if error.reason.startswith(GAVE_UP):
                raise
            usage += error.usage or Usage(llm_calls=1)
            fault, raw = _Fault(error.reason, "it is empty" if error.reason == "empty" else str(error)), error.raw
            continue
        usage, seconds = usage + reply.usage, seconds + reply.seconds
        found, truncated = _read(reply, response_type, accept_truncated)
        if not isinstance(found, _Fault):
            value, strict = found
            return Structured(value, reply, usage, seconds, call, call > 1 or not strict, truncated)
        fault, raw = found, reply.text
    name = f"prompt {request.prompt_id!r}" if request.prompt_id else "the prompt"
    tries = f" (after {attempts + 1} tries)" if attempts else ""
    raise LLMReplyError(fault.reason, f"the reply to {name} cannot be used: {fault.message}{tries}", raw, usage)


def _read(reply: Reply, response_type: type[T], accept_truncated: bool) -> tuple[tuple[T, bool] | _Fault, bool]:
    """The value (and whether it was strict JSON) or the fault; and whether the value was cut off."""
    text = reply.text
    if not text.strip():
        return _Fault("empty", "it is empty"), False
    cut = reply.finish_reason == "length"
    first: _Fault | None = None
    for candidate in candidates(text):
        # What was made up to close a cut text is no more than what `salvaged` gives, and less careful.
        if cut and not candidate.whole:
            continue
        fitted = _fit(candidate.value, response_type)
        if not isinstance(fitted, _Fault):
            return (fitted, candidate.strict), False
        first = first or fitted
    if cut and is_looped(text):
        return _Fault("looped", "it repeats itself up to the token limit"), False
    if cut and accept_truncated:
        for value in salvaged(text):
            fitted = _fit(value, response_type)
            if not isinstance(fitted, _Fault):
                return (fitted, False), True
    if first is not None:
        return first, False
    if cut:
        return _Fault("truncated", "it was cut off at the token limit"), False
    return _Fault("not-json", "it holds no JSON object"), False


def _fit(value: Any, response_type: type[T]) -> T | _Fault:
    try:
        return response_type.model_validate(value)
    except ValidationError as error:
        return _Fault("wrong-schema", _shortened(error))
    except RecursionError:
        return _Fault("wrong-schema", "it is nested too deeply")


def _shortened(error: ValidationError) -> str:
    """Places and messages, without the values: those are the model's text."""
    faults = [
        f"{'.'.join(str(part) for part in item['loc']) or 'reply'}: {item['msg']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)[:3]
    ]
    more = f" (and {error.error_count() - 3} more)" if error.error_count() > 3 else ""
    return "; ".join(faults)[: _FAULT_CHARS - len(more)] + more


def _again(request: Request, fault: _Fault) -> Request:
    """The request with a note at the end of the user's message: some templates refuse two user messages in a row, and
    the prompt before the note stays in the server's prefix cache."""
    shorter = " Be brief." if fault.reason in ("truncated", "looped") else ""
    note = (
        f"Note: an earlier reply could not be used: {fault.message[:_FAULT_CHARS]}.{shorter}"
        " Reply with one complete JSON value of the form asked for, and nothing else."
    )
    *before, last = request.messages
    if last.role == "user":
        messages = (*before, Message(role="user", content=f"{last.content}\n\n{note}"))
    else:
        messages = (*request.messages, Message(role="user", content=note))
    return request.model_copy(
        update={
            "messages": messages,
            "temperature": max(request.temperature, _REPAIR_TEMPERATURE),
            "frequency_penalty": max(request.frequency_penalty, _REPAIR_FREQUENCY_PENALTY),
        }
    )
