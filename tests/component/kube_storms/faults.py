"""The storm: every sort of fault that the server has, for a while each, many at once.

It strikes only the users that it is given, and slows the watches of one of them; a restart, a
compaction and a hurry meet everybody.
"""

import random as chance
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from libs.runtime.env import Env
from libs.testing.apiserver.faults import (
    ActiveFault,
    Cut,
    Delay,
    DropWatch,
    Fault,
    FaultEffect,
    Hang,
    RefuseRequest,
    Restart,
    SlowBody,
    Stale,
)
from libs.testing.apiserver.server import ApiServer

READER = "reader"
"""Who only follows."""

WRITER = "servant"
"""Who writes too, and reads lists of any age."""

SLOW_READER = "snail"
"""To whom a watch may come slowly."""

WRITES = ("create", "update", "patch", "apply", "delete", "evict")


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    """A fault to be drawn."""

    does: Callable[[chance.Random], FaultEffect]
    verbs: tuple[str, ...] = ()
    """Empty means all."""
    users: tuple[str, ...] = (READER, WRITER, SLOW_READER)
    odds: tuple[float, ...] = (0.1, 0.5, 1.0)


def _refusal(code: int) -> FaultKind:
    return FaultKind(does=lambda _: RefuseRequest(code))


FAULT_KINDS: dict[str, FaultKind] = {
    "delay in the server": FaultKind(does=lambda r: Delay(r.uniform(0.1, 12.0))),
    "delay on the way": FaultKind(does=lambda r: Delay(r.uniform(0.1, 12.0), where="way")),
    "hang": FaultKind(does=lambda _: Hang()),
    "401": _refusal(401),
    "403": _refusal(403),
    "409": FaultKind(does=lambda _: RefuseRequest(409), verbs=WRITES, users=(WRITER,)),
    "429": FaultKind(does=lambda r: RefuseRequest(429, retry_after=r.randrange(1, 5))),
    "500": _refusal(500),
    "503": _refusal(503),
    "504": _refusal(504),
    "cut before": FaultKind(does=lambda _: Cut("before")),
    "cut after": FaultKind(does=lambda _: Cut("after")),
    "cut in the body": FaultKind(does=lambda _: Cut("body")),
    "watch ends": FaultKind(does=lambda r: DropWatch(r.randrange(4)), verbs=("watch",)),
    "watch is cut": FaultKind(
        does=lambda r: DropWatch(r.randrange(4), clean=False), verbs=("watch",)
    ),
    "stale": FaultKind(does=lambda r: Stale(r.randrange(1, 60)), users=(WRITER,)),
    "slow": FaultKind(
        does=lambda r: SlowBody(r.choice([1_000, 4_000]), r.uniform(0.01, 0.5)),
        verbs=("get", "list", *WRITES),
    ),
    "slow watch": FaultKind(
        does=lambda r: SlowBody(r.choice([1_000, 4_000]), r.uniform(0.01, 0.1)),
        verbs=("watch",),
        users=(SLOW_READER,),
    ),
    "restart": FaultKind(does=lambda _: Restart(), odds=(0.1,)),
}

INSTANT_FAULTS = (
    "all watches end",
    "all watches are cut",
    "compaction",
    "server restarts",
    "hurry",
)

ALL_FAULTS = frozenset([*FAULT_KINDS, *INSTANT_FAULTS])


class FaultInjector:
    """What goes wrong, drawn from a seed; `struck` counts it by sort."""

    def __init__(
        self,
        server: ApiServer,
        *,
        hurry: Callable[[], Awaitable[None]],
        env: Env,
    ) -> None:
        self._server = server
        self._hurry = hurry
        self.clock = env.clock
        self._random = env.random
        self._deck: list[str] = []
        self._spells: list[tuple[float, str, ActiveFault]] = []
        self.injected: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
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
        sort = FAULT_KINDS[name]
        fault = Fault(
            effect=sort.does(self._random),
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
            self._deck = self._random.sample(list(FAULT_KINDS), len(FAULT_KINDS))
        return self._deck.pop()

    def _end(self, *, before: float) -> None:
        over = [spell for spell in self._spells if spell[0] < before]
        for _, sort, active in over:
            self._server.faults.remove(active)
            self.injected[sort] += active.hit_count
        self._spells = [spell for spell in self._spells if spell not in over]

    async def _at_once(self) -> None:
        sort = self._random.choice(INSTANT_FAULTS)
        self.injected[sort] += 1
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
