"""Clients of the endpoint: a fixed number that ask one question after the other, or a fixed rate whatever happens."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Asked:
    """One question's fate. `status` 0: no HTTP answer came; `tries` counts the first."""

    began_s: float
    seconds: float
    status: int
    tries: int = 1
    body: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    retry_after: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was answered."""
        return self.status == 200 and bool(self.body.get("answer"))


def questions() -> Iterator[str]:
    """Questions that differ, on the made-up documents."""
    for number in itertools.count():
        yield f"What does Basin {number % 97}-{number % 5} hold?"


class Load:
    """Asks for answers, or searches, at one server.

    `more` stands in each request's body; `retries` are for a server that was lost.
    """

    def __init__(
        self,
        url: str,
        more: dict[str, Any] | None = None,
        retries: int = 0,
        timeout_s: float = 120.0,
        path: str = "/v1/answer",
    ) -> None:
        self._more, self._retries, self._path = more or {}, retries, path
        self._questions = questions()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        self._client = httpx.AsyncClient(base_url=url, timeout=timeout_s, limits=limits, trust_env=False)
        self.done: list[Asked] = []

    async def __aenter__(self) -> Load:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def clients(self, count: int, seconds: float, within_s: float = 0.0) -> None:
        """So many clients, each asking again as soon as it has its answer; they begin evenly `within_s` seconds.

        With answers of one length, clients that begin together would stay together.
        """
        end = time.monotonic() + seconds

        async def client(number: int) -> None:
            await asyncio.sleep(within_s * number / count)
            while time.monotonic() < end:
                await self.ask()

        await asyncio.gather(*(client(number) for number in range(count)))

    async def rate(self, per_s: float, going: Callable[[], bool]) -> None:
        """So many questions a second, evenly, as long as `going` says so; waits for all answers at its end."""
        tasks: list[asyncio.Task[Asked]] = []
        began = time.monotonic()
        while going():
            tasks.append(asyncio.create_task(self.ask()))
            await asyncio.sleep(max(0.0, began + len(tasks) / per_s - time.monotonic()))
        await asyncio.gather(*tasks)

    async def ask(self) -> Asked:
        """One question."""
        began = time.monotonic()
        question = next(self._questions)
        for tries in range(1, self._retries + 2):
            asked = await self._once(question, began)
            asked.tries = tries
            if asked.status not in (0, 500, 502, 503):
                break
        self.done.append(asked)
        return asked

    async def _once(self, question: str, began: float) -> Asked:
        try:
            text = {"query" if self._path == "/v1/search" else "question": question}
            response = await self._client.post(self._path, json={**text, **self._more})
        except httpx.HTTPError as error:
            return Asked(began, time.monotonic() - began, 0, error=f"{type(error).__name__}: {error}")
        seconds = time.monotonic() - began
        try:
            body = response.json()
        except ValueError:
            body = {"detail": response.text[:300]}
        asked = Asked(began, seconds, response.status_code, body=body, error="" if response.is_success else str(body))
        asked.retry_after = response.headers.get("retry-after", "")
        return asked
