"""One limit on calls over several clients: who may have how many at once.

Clients tell what they use and want, and are told their share. No share is given out twice: what one client holds, or
may still hold because it does not know better yet, is not free for another. The limit itself gives way when the
endpoint is overloaded and comes back slowly (additive increase, multiplicative decrease).

Pure and synchronous: no clock but the one handed in, no network. It does not know whether its answers arrive: a client
that has heard nothing for `stale_s` has been dropped, and must stop making calls until it is told a share again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


class Shares:
    """The limit and its clients. Not safe for several threads at once.

    While the limit is at least the number of clients, each has its share at the latest in the fourth round of reports
    after a change of demands, if running calls beyond the shares end by then. With more clients than that, they take
    turns.

    `headroom_for_idle` suits work that comes in bursts: a client whose next call comes may begin at once.

    `total` is the most calls at once over all clients, `stale_s` how long a silent client is waited for, `cooldown_s`
    the least time between two halvings of the limit. Raises ValueError for values that cannot work.
    """

    def __init__(
        self,
        total: int,
        stale_s: float = 10.0,
        cooldown_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        headroom_for_idle: bool = False,
    ) -> None:
        if total < 1 or stale_s <= 0 or cooldown_s < 0:
            raise ValueError(
                f"total={total}, stale_s={stale_s}, cooldown_s={cooldown_s}: 1 or more, above 0, 0 or more"
            )
        self._total, self._stale_s, self._cooldown_s, self._clock = total, stale_s, cooldown_s, clock
        self._headroom_for_idle = headroom_for_idle
        self._limit = total
        self._halved_at: float | None = None
        self._calm_since = clock()
        self._round = 0
        self._clients: dict[str, _Client] = {}

    @property
    def total(self) -> int:
        """The limit as configured."""
        return self._total

    @property
    def limit(self) -> int:
        """The limit now: lower than `total` for a while after overloads."""
        self._recover(self._clock())
        return self._limit

    @property
    def granted(self) -> dict[str, int]:
        """The share each client was last given, clients dropped left out, in the order in which they came."""
        self._drop_silent(self._clock())
        return {name: client.granted for name, client in self._clients.items()}

    def report(self, client: str, in_use: int, waiting: int, overloads: int) -> int:
        """What `client` does now, for its share: its new limit, which may be 0 (pause).

        `in_use` and `waiting` are calls; `overloads` counts the overload answers since the client began, not since
        the last report, so that a report which is lost or sent twice does no harm. A client sends one report at a
        time, and the next after it works under the share it was told. It may be told less than it uses: running calls
        finish. Raises ValueError for a negative count.
        """
        if min(in_use, waiting, overloads) < 0:
            raise ValueError(
                f"client {client!r}: in_use={in_use}, waiting={waiting}, overloads={overloads}: none may be negative"
            )
        now = self._clock()
        self._drop_silent(now)
        self._recover(now)
        known = self._clients.setdefault(client, _Client())
        # A count that fell is that of a client which began anew under its old name.
        if overloads > (known.overloads if overloads >= known.overloads else 0):
            self._give_way(now)
        known.overloads, known.seen_at = overloads, now
        known.in_use, known.demand = in_use, in_use + waiting
        self._round += 1
        # Until the answer arrives the client works under the share before. It may keep of that what it still is to
        # have, even where the limit has shrunk and nothing is free: that gives nothing out, and nobody is stopped.
        known.before = known.granted
        known.granted = min(self._target(client), max(self._free_for(client), known.before))
        if known.granted:
            known.fed = self._round
        return known.granted

    def leave(self, client: str) -> None:
        """The client is done and has no call running: its share is free at once. An unknown one is no error."""
        self._clients.pop(client, None)

    def _free_for(self, name: str) -> int:
        return self._limit - sum(client.held for other, client in self._clients.items() if other != name)

    def _target(self, name: str) -> int:
        """What the client would have if all were free."""
        clients = self._clients
        if len(clients) <= self._limit:
            demands = {other: client.demand for other, client in clients.items()}
            return divided(self._limit, demands, self._headroom_for_idle)[name]
        # Too many for one each: those with work come first, and among them who went without for the longest time.
        ranked = sorted(clients, key=lambda other: (not clients[other].demand, clients[other].fed))
        return int(name in ranked[: self._limit])

    def _drop_silent(self, now: float) -> None:
        for name in [name for name, client in self._clients.items() if now - client.seen_at >= self._stale_s]:
            del self._clients[name]

    def _give_way(self, now: float) -> None:
        """Half the limit. One burst of overload answers halves once: the calls behind it were made under one limit."""
        if self._halved_at is None or now - self._halved_at >= self._cooldown_s:
            self._limit = max(1, self._limit // 2)
            self._halved_at = now
        self._calm_since = now

    def _recover(self, now: float) -> None:
        seconds = int(now - self._calm_since)
        if seconds > 0:
            self._limit = min(self._total, self._limit + seconds * max(1, self._total // 20))
            self._calm_since += seconds


@dataclass
class _Client:
    """What is known of a client. `before` is the share ahead of `granted`, `fed` the last round it got any."""

    granted: int = 0
    before: int = 0
    in_use: int = 0
    demand: int = 0
    overloads: int = 0
    fed: int = 0
    seen_at: float = 0.0

    @property
    def held(self) -> int:
        """The most calls it may have running, for all that is known."""
        return max(self.granted, self.before, self.in_use)


def divided(limit: int, demands: Mapping[str, int], headroom_for_idle: bool = False) -> dict[str, int]:
    """`limit` among clients, 1 each and the rest by demand, evenly; remainders in the order of `demands`.

    No client with work gets more than it demands while another lacks some; what then remains is headroom, spread
    evenly over the clients with work, or over all with `headroom_for_idle`. Idle ones keep 1, so that their next call
    need not wait for a report. `limit` is at least the number of clients.
    """
    shares = dict.fromkeys(demands, 1)
    left = limit - len(shares)
    while left and (short := [name for name, demand in demands.items() if shares[name] < demand]):
        each = left // len(short)
        # The remainder only once nothing goes round evenly any more, or a client met early would leave it lopsided.
        for name in short if each else short[:left]:
            more = min(each or 1, demands[name] - shares[name])
            shares[name] += more
            left -= more
    busy = [name for name, demand in demands.items() if demand or headroom_for_idle]
    for number, name in enumerate(busy):
        shares[name] += left // len(busy) + (number < left % len(busy))
    return shares
