"""Leases under faults: at most one candidate leads, and one leads after the faults."""

import asyncio
import random
from contextlib import suppress

import pytest

from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.lease.term import Term
from libs.testing.apiserver.faults import (
    Cut,
    Delay,
    Fault,
    FaultEffect,
    Hang,
    RefuseRequest,
    Restart,
    SlowBody,
)
from libs.testing.simulation import Sim, run
from tests.unit.kube.lease_candidates import (
    LeaseCandidate,
    LeaseWorld,
    silence_logs,
    write_effect,
)

pytestmark = pytest.mark.usefixtures(silence_logs.__name__)

STORM = 240.0
CALM = 40.0


async def restless(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
    """Lead until cancelled or for a while; sometimes continue 5 s after the cancellation."""
    machine, chance = candidate.machine, candidate.random
    is_stubborn = chance.random() < 0.3
    until = chance.choice([float("inf"), chance.uniform(1.0, 30.0)])
    cancelled: asyncio.CancelledError | None = None
    count = 0
    while machine.monotonic() < until:
        count += 1
        try:
            with suppress(KubeError):
                await write_effect(candidate, term, kube, count)
            await machine.sleep(chance.uniform(0.1, 0.7))
        except asyncio.CancelledError as error:
            if cancelled or not is_stubborn:
                raise
            cancelled, until = error, machine.monotonic() + 5.0
    if cancelled:
        raise cancelled


def random_fault(chance: random.Random) -> Fault:
    effects: list[FaultEffect] = [
        Delay(chance.uniform(0.1, 3.0), where="way"),
        Delay(chance.uniform(0.1, 4.0)),
        SlowBody(10_000, chance.uniform(0.1, 6.0)),
        Hang(),
        RefuseRequest(409),
        RefuseRequest(429, retry_after=1),
        RefuseRequest(500),
        Cut("before"),
        Cut("after"),
        Cut("body"),
        Restart(),
    ]
    effect = chance.choice(effects)
    return Fault(
        effect=effect,
        kind=chance.choice(["", "Lease", "ConfigMap"]),
        user=chance.choice(["", "c0", "c1", "c2"]),
        probability=0.05 if isinstance(effect, Restart) else chance.uniform(0.1, 1.0),
    )


class Storm(LeaseWorld):
    """Candidates under random faults that are killed, frozen and replaced."""

    def __init__(self, sim: Sim, *, freezes: bool) -> None:
        super().__init__(sim, with_lease=False, overlaps=freezes)
        self._freezes = freezes
        self._random = sim.random_for("storm")
        self._alive: list[LeaseCandidate] = []

    def add_one(self) -> None:
        self._alive.append(self.add_candidate(f"c{len(self.candidates)}", restless))

    async def run_faults(self) -> None:
        while self.clock.monotonic() < STORM:
            active = self.server.faults.add(random_fault(self._random))
            await self.clock.sleep(self._random.uniform(0.5, 10.0))
            assert sum(candidate.is_leading for candidate in self.candidates.values()) <= 1
            if self._random.random() < 0.6:
                self.server.faults.remove(active)
            await self._disturb()
        self.server.faults.clear()

    async def _disturb(self) -> None:
        match self._random.randrange(12):
            case 0 | 1:
                candidate = self._alive.pop(self._random.randrange(len(self._alive)))
                self.add_one()
                await (self.kill(candidate) if self._random.random() < 0.6 else candidate.stop())
            case 2:
                with suppress(KubeError):
                    await self.delete_lease()
            case 3:
                self.server.faults.clear()
            case 4 | 5 | 6 if self._freezes:
                self._alive[0].machine.freeze(self._random.uniform(1.0, 40.0))
            case _:
                pass


async def run_storm(sim: Sim, *, candidates: int, freezes: bool) -> Storm:
    storm = Storm(sim, freezes=freezes)
    for _ in range(candidates):
        storm.add_one()
    await storm.run_faults()
    await sim.clock.sleep(CALM)
    await storm.close()
    return storm


DEAR = pytest.mark.soak("more seeds of the storm; each run plays the first eight")


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(block, marks=DEAR) for block in (2, 3))])
def test_no_write_of_an_old_leader_follows_the_first_of_a_new_one(block: int) -> None:
    for seed in range(block * 4, block * 4 + 4):
        storm = run(lambda sim: run_storm(sim, candidates=3, freezes=True), seed=seed)
        assert storm.effects(since=STORM + 35.0), seed


def test_bodies_never_overlap() -> None:
    successions = 0
    for seed in range(4):
        storm = run(lambda sim: run_storm(sim, candidates=2, freezes=False), seed=seed)
        successions += len(storm.successions())
    assert successions > 12
