"""The storm: every sort of fault that the server has, for a while each, many at once.

It strikes only the users that it is given, and slows the watches of one of them; a restart, a
compaction and a hurry meet everybody.
"""

import random as chance
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from libs.runtime.clock import Clock
from libs.testing.apiserver.faults import (
    Active,
    Cut,
    Delay,
    DropWatch,
    Fault,
    Hang,
    Refuse,
    Restart,
    Slow,
    Stale,
    Strike,
)
from libs.testing.apiserver.server import ApiServer

READER = "reader"
"""Who only follows."""

SERVANT = "servant"
"""Who writes too, and reads lists of any age."""

SNAIL = "snail"
"""To whom a watch may come slowly."""

WRITES = ("create", "update", "patch", "apply", "delete", "evict")


class Sort(msgspec.Struct, frozen=True, kw_only=True):
    """A fault to be drawn."""

    does: Callable[[chance.Random], Strike]
    verbs: tuple[str, ...] = ()
    """Empty means all."""
    users: tuple[str, ...] = (READER, SERVANT, SNAIL)
    odds: tuple[float, ...] = (0.1, 0.5, 1.0)


def _refusal(code: int) -> Sort:
    return Sort(does=lambda _: Refuse(code))


SORTS: dict[str, Sort] = {
    "delay in the server": Sort(does=lambda r: Delay(r.uniform(0.1, 12.0))),
    "delay on the way": Sort(does=lambda r: Delay(r.uniform(0.1, 12.0), where="way")),
    "hang": Sort(does=lambda _: Hang()),
    "401": _refusal(401),
    "403": _refusal(403),
    "409": Sort(does=lambda _: Refuse(409), verbs=WRITES, users=(SERVANT,)),
    "429": Sort(does=lambda r: Refuse(429, retry_after=r.randrange(1, 5))),
    "500": _refusal(500),
    "503": _refusal(503),
    "504": _refusal(504),
    "cut before": Sort(does=lambda _: Cut("before")),
    "cut after": Sort(does=lambda _: Cut("after")),
    "cut in the body": Sort(does=lambda _: Cut("body")),
    "watch ends": Sort(does=lambda r: DropWatch(r.randrange(4)), verbs=("watch",)),
    "watch is cut": Sort(does=lambda r: DropWatch(r.randrange(4), clean=False), verbs=("watch",)),
    "stale": Sort(does=lambda r: Stale(r.randrange(1, 60)), users=(SERVANT,)),
    "slow": Sort(
        does=lambda r: Slow(r.choice([1_000, 4_000]), r.uniform(0.01, 0.5)),
        verbs=("get", "list", *WRITES),
    ),
    "slow watch": Sort(
        does=lambda r: Slow(r.choice([1_000, 4_000]), r.uniform(0.01, 0.1)),
        verbs=("watch",),
        users=(SNAIL,),
    ),
    "restart": Sort(does=lambda _: Restart(), odds=(0.1,)),
}

SUDDEN = ("all watches end", "all watches are cut", "compaction", "server restarts", "hurry")

EVERY = frozenset([*SORTS, *SUDDEN])


class Weather:
    """What goes wrong, drawn from a seed; `struck` counts it by sort."""

    def __init__(
        self,
        server: ApiServer,
        *,
        hurry: Callable[[], Awaitable[None]],
        clock: Clock,
        random: chance.Random,
    ) -> None:
        self._server = server
        self._hurry = hurry
        self.clock = clock
        self._random = random
        self._deck: list[str] = []
        self._spells: list[tuple[float, str, Active]] = []
        self.struck: Counter[str] = Counter()

    async def rage(self, seconds: float) -> None:
        """So long; then all goes well again."""
        until = self.clock.monotonic() + seconds
        pause = self._random.choice([0.5, 1.5, 5.0])
        while (now := self.clock.monotonic()) < until:
            self._end(before=now)
            if self._random.random() < 0.85:
                self._begin(now)
            else:
                await self._at_once()
            await self.clock.sleep(self._random.uniform(0.0, 2.0 * pause))
        self._end(before=float("inf"))

    def _begin(self, now: float) -> None:
        name = self._next()
        sort = SORTS[name]
        fault = Fault(
            does=sort.does(self._random),
            verbs=sort.verbs,
            user=self._random.choice(sort.users),
            probability=self._random.choice(sort.odds),
        )
        if sort.verbs == ("watch",):
            # It strikes a watch that opens, and those that are open may be so for minutes.
            self._server.faults.drop_watches(user=fault.user)
        span = self._random.uniform(0.5, 15.0)
        self._spells.append((now + span, name, self._server.faults.add(fault)))

    def _next(self) -> str:
        """Each once before any comes again."""
        if not self._deck:
            self._deck = self._random.sample(list(SORTS), len(SORTS))
        return self._deck.pop()

    def _end(self, *, before: float) -> None:
        over = [spell for spell in self._spells if spell[0] < before]
        for _, sort, active in over:
            self._server.faults.remove(active)
            self.struck[sort] += active.struck
        self._spells = [spell for spell in self._spells if spell not in over]

    async def _at_once(self) -> None:
        sort = self._random.choice(SUDDEN)
        self.struck[sort] += 1
        match sort:
            case "all watches end" | "all watches are cut":
                self._server.faults.drop_watches(clean=sort == "all watches end")
            case "compaction":
                await self._server.compact()
            case "server restarts":
                await self._server.stop()
                await self.clock.sleep(self._random.choice([0.0, 1.0, 5.0]))
                await self._server.start()
            case _:
                await self._hurry()
