"""A store of replies in a dictionary, for tests of what keeps them."""

from __future__ import annotations

import asyncio

from resin_core.llm.protocol import Reply


class DictStore:
    """Implements ReplyStore. While `gate` is not set, `put` waits; `get_error` and `put_error` are raised."""

    def __init__(self) -> None:
        self.kept: dict[str, Reply] = {}
        self.puts = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.get_error: Exception | None = None
        self.put_error: Exception | None = None

    async def get(self, key: str) -> Reply | None:
        """The reply, or None, or `get_error`."""
        await asyncio.sleep(0)
        if self.get_error is not None:
            raise self.get_error
        return self.kept.get(key)

    async def put(self, key: str, reply: Reply) -> None:
        """Once the gate is set."""
        self.puts += 1
        await self.gate.wait()
        if self.put_error is not None:
            raise self.put_error
        self.kept[key] = reply
