"""The application that wants keys, what stands in its index, and the keys themselves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tests.integration.endpoints import Endpoint
from tests.scripted_llm import ScriptedServer

QUESTION = "How much does Mill 0-1 weigh?"
# Each may do what its name says; `all` everything, `limited` little of it.
KEYS = {
    name: f"resin-{name}-4f1c9a7be2d05836-KEY-OF-A-TEST"
    for name in ("ask", "traces", "admin", "all", "limited", "stranger")
}
PER_MINUTE = 2
_SCOPES = {"all": ["ask", "traces", "admin"], "limited": ["ask"]}
# Costly requests are bounded as a real endpoint bounds them.
SETTINGS = (
    "serving.allow_anonymous=false",
    "serving.ingress.min_replicas=2",
    "serving.ingress.max_replicas=2",
    "serving.max_top_k=20",
    "strategies.deadline_s=20",
)


@dataclass(frozen=True)
class Guarded:
    """What runs. `logs` is the folder that Ray keeps the logs of all replicas in."""

    endpoint: Endpoint
    model: ScriptedServer
    index: Path
    logs: Path


def settings() -> list[str]:
    """Settings in the form of `--set` that ask for keys; the stranger's is not among them."""
    keys = [
        {
            "name": name,
            "sha256": sha256(key),
            "scopes": _SCOPES.get(name, [name]),
            **({"per_minute": PER_MINUTE} if name == "limited" else {}),
        }
        for name, key in KEYS.items()
        if name != "stranger"
    ]
    return [*SETTINGS, f"serving.keys={json.dumps(keys)}"]


def bearer(name: str) -> dict[str, str]:
    """The header that shows a key."""
    return {"Authorization": f"Bearer {KEYS[name]}"}


def sha256(key: str) -> str:
    """What the configuration has of a key."""
    return hashlib.sha256(key.encode()).hexdigest()
