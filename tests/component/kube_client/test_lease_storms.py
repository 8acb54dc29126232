"""The lease under hundreds of storms: whatever the network and the machines do, one leads at most.

Judged over the server's journal; the server may carry out each request as late as it ever can.
"""

import asyncio
from contextlib import suppress

import pytest

from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.lease.term import Term
from libs.testing.simulation import Sim, run
from tests.unit.kube.fake_lease_server import (
    FakeLeaseServer,
    FakeLeaseTransport,
    no_faults,
    random_faults,
)
from tests.unit.kube.lease_candidates import (
    LeaseCandidate,
    effects,
    effects_out_of_term,
    overlapping_tenures,
    silence_logs,
    successions,
    write_effect,
)

pytestmark = pytest.mark.usefixtures(silence_logs.__name__)

STORM = 240.0
CALM = 40.0


class World:
    """A server, and candidates that come and go."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.random = sim.random_for("stage")
        self.server = FakeLeaseServer(sim.clock)
        self.candidates: list[LeaseCandidate] = []
        self.alive: list[tuple[LeaseCandidate, FakeLeaseTransport]] = []

    def add_candidate(self) -> None:
        name = f"c{len(self.candidates)}"
        wire = self.server.transport(name)
        candidate = LeaseCandidate(self.sim, name, wire, restless)
        self.candidates.append(candidate)
        self.alive.append((candidate, wire))

    async def replace(self, *, killed: bool) -> None:
        candidate, wire = self.alive.pop(self.random.randrange(len(self.alive)))
        wire.cut = killed
        await candidate.stop()
        self.add_candidate()

    def together(self) -> int:
        return sum(candidate.is_leading for candidate in self.candidates)


async def restless(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
    """Leads until the end, or for a while; sometimes goes on although it was cancelled."""
    machine, random = candidate.machine, candidate.random
    stubborn = random.random() < 0.3
    until = random.choice([float("inf"), random.uniform(1.0, 30.0)])
    cancelled: asyncio.CancelledError | None = None
    count = 0
    while machine.monotonic() < until:
        count += 1
        try:
            with suppress(KubeError):
                await write_effect(candidate, term, kube, count)
            await machine.sleep(random.uniform(0.1, 0.7))
        except asyncio.CancelledError as error:
            if cancelled or not stubborn:
                raise
            cancelled, until = error, machine.monotonic() + 5.0
    if cancelled:
        raise cancelled


async def storm(stage: World, *, freezes: bool) -> None:
    random = stage.random
    stage.server.weather = random_faults(
        stage.sim.random_for("storm"), badness=random.uniform(0.02, 0.4)
    )
    while stage.sim.clock.monotonic() < STORM:
        await stage.sim.clock.sleep(random.uniform(0.5, 10.0))
        assert stage.together() <= 1
        match random.randrange(12):
            case 0 | 1:
                await stage.replace(killed=True)
            case 2:
                await stage.replace(killed=False)
            case 3:
                stage.server.delete()
            case 4 | 5 | 6 if freezes:
                stage.alive[0][0].machine.freeze(random.uniform(1.0, 40.0))
            case _:
                pass


async def survive(sim: Sim, *, candidates: int, freezes: bool) -> World:
    stage = World(sim)
    for _ in range(candidates):
        stage.add_candidate()
    await storm(stage, freezes=freezes)
    stage.server.weather = no_faults
    await sim.clock.sleep(CALM)
    for candidate, _ in stage.alive:
        await candidate.stop()
    return stage


@pytest.mark.parametrize("block", range(8))
def test_no_write_of_an_old_leader_follows_the_first_of_a_new_one(block: int) -> None:
    """Three candidates, with freezes, deletions, deaths and bodies that will not go."""
    for seed in range(block * 25, block * 25 + 25):
        stage = run(lambda sim: survive(sim, candidates=3, freezes=True), seed=seed)
        assert not effects_out_of_term(stage.server.journal), seed
        assert effects(stage.server.journal, since=STORM + 35.0), seed


def test_bodies_never_overlap() -> None:
    """Two candidates whose machines do not freeze."""
    handed_over = 0
    for seed in range(50):
        stage = run(lambda sim: survive(sim, candidates=2, freezes=False), seed=seed)
        assert not overlapping_tenures(stage.candidates), seed
        handed_over += len(successions(stage.server.journal))
    assert handed_over > 150
