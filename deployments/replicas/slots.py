"""What all replicas share: the model's slots, the counts of the keys' requests, and whether all has worked once."""

from __future__ import annotations

from deployments.logs import configure
from deployments.rates import RateLimits
from resin_core.llm.sharing import Shares


class Slots:
    """One replica. When it is replaced, it learns anew who uses what: for a moment a limit may be exceeded."""

    def __init__(self) -> None:
        configure()
        self._shares: dict[str, Shares] = {}
        self._rates = RateLimits()
        self._answered = False

    async def answered(self, now: bool) -> bool:
        """Whether the smoke question was answered in the life of this application; `now`: it just was."""
        self._answered = self._answered or now
        return self._answered

    async def report(self, endpoint: str, total: int, client: str, in_use: int, waiting: int, overloads: int) -> int:
        """The share of `client` in the `total` calls that `endpoint` may work on at once."""
        shares = self._shares.setdefault(endpoint, Shares(total, headroom_for_idle=True))
        return shares.report(client, in_use, waiting, overloads)

    async def allow(self, name: str, per_minute: int) -> float:
        """0 when the key may make one more request now, else the seconds until it may."""
        return self._rates.allow(name, per_minute)
