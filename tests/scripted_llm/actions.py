"""What a scripted model does with one request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reply:
    """A good reply. `text` None is null content. `usage` None: words of prompt and reply; False: none is sent.

    Streamed, the text comes in pieces of `piece_chars`, `piece_s` apart, after `latency_s`.
    """

    text: str | None
    latency_s: float = 0.0
    finish_reason: str | None = "stop"
    usage: tuple[int, int] | bool | None = None
    piece_chars: int = 8
    piece_s: float = 0.0

    def pieces(self) -> list[str]:
        """The text cut up."""
        text = self.text or ""
        return [text[at : at + self.piece_chars] for at in range(0, len(text), self.piece_chars)]

    def counts(self, request: Mapping[str, Any]) -> tuple[int, int] | None:
        """Prompt and completion tokens to report."""
        if isinstance(self.usage, tuple):
            return self.usage
        if self.usage is False:
            return None
        prompt = sum(len(str(message["content"]).split()) for message in request["messages"])
        return prompt, len((self.text or "").split())


@dataclass(frozen=True)
class Status:
    """An HTTP error."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    latency_s: float = 0.0


@dataclass(frozen=True)
class Hang:
    """Says nothing more for as long as the client stays; streamed, after `pieces` pieces of `text`."""

    pieces: int = 0
    text: str = "some words before silence"


@dataclass(frozen=True)
class Reset:
    """Cuts the connection with a TCP reset: before anything is sent, or (`pieces` > 0) in the middle of the reply."""

    pieces: int = 0
    text: str = "some words before the cut"


@dataclass(frozen=True)
class Malformed:
    """HTTP 200 with this body, whatever was asked for."""

    body: bytes
    content_type: str = "application/json"


Action = Reply | Status | Hang | Reset | Malformed
Handler = Callable[[dict[str, Any]], Action]


class Script:
    """Answers requests with the actions in turn; the last one again and again."""

    def __init__(self, *actions: Action) -> None:
        self._actions = list(actions)

    def __call__(self, request: dict[str, Any]) -> Action:
        return self._actions.pop(0) if len(self._actions) > 1 else self._actions[0]


def handler_of(actions: tuple[Action | Handler, ...]) -> Handler:
    """One function, or actions in turn."""
    if len(actions) == 1 and callable(actions[0]):
        return actions[0]
    fixed = [action for action in actions if not callable(action)]
    if len(fixed) != len(actions) or not fixed:
        raise ValueError("give one handler function, or one or more actions")
    return Script(*fixed)


def as_json(value: Any) -> bytes:
    """Bytes of a JSON body."""
    return json.dumps(value).encode()
