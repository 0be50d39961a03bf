"""What extraction actors tell the run's watch, and what it tells them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SILENT_S = 10.0
"""An actor that was not heard of for so long is gone, and pauses itself if it is not."""

Stop = Literal["", "budget", "endpoint", "fatal", "failures", "zero-yield", "told"]


@dataclass(frozen=True)
class ActorReport:
    """One actor's state since it began; counts only grow, so a report that is lost or comes twice does no harm."""

    client: str
    documents: int = 0
    units: int = 0
    failed: int = 0
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    spent: float = 0.0
    starved: bool = False
    in_use: int = 0
    waiting: int = 0
    overloads: int = 0
    silent_s: float = 0.0
    failing_s: float = 0.0
    refused_s: float = 0.0
    cause: str = ""
    fatal: str = ""
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Orders:
    """How many calls an actor may have in flight, what it may have spent (parts of the budget), and whether to stop."""

    limit: int
    allowance: float
    stop: Stop = ""


@dataclass(frozen=True)
class Verdict:
    """Why a run stops; `stop` is empty while it goes on."""

    stop: Stop = ""
    message: str = ""
