"""The lease on the simulated API server, with that server's faults, judged over its journal."""

import random

import pytest

from libs.contracts.journal import Revision
from libs.kube.client import Kube
from libs.kube.resources import LEASES, NAMESPACES
from libs.testing.apiserver.faults import (
    Cut,
    Delay,
    Fault,
    FaultEffect,
    Hang,
    RefuseRequest,
    Restart,
)
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run
from tests.unit.kube.fake_lease_server import LEASE, NAMESPACE
from tests.unit.kube.lease_candidates import (
    LeaseCandidate,
    effects,
    effects_out_of_term,
    overlapping_tenures,
    silence_logs,
    successions,
    write_forever,
)

pytestmark = pytest.mark.usefixtures(silence_logs.__name__)


class World:
    """A server with an empty lease."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.admin = Kube(self.server.transport(user="admin"), manager="admin", clock=sim.clock)
        self.candidates: list[LeaseCandidate] = []
        self.calm_since = 0.0

    async def prepare(self) -> None:
        await self.admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await self.admin.create(
            LEASES, {"metadata": {"name": LEASE, "labels": {"app": "x"}}}, namespace=NAMESPACE
        )

    def add_candidate(self, name: str) -> LeaseCandidate:
        transport = self.server.transport(user=name)
        self.candidates.append(LeaseCandidate(self.sim, name, transport, write_forever))
        return self.candidates[-1]

    @property
    def journal(self) -> list[Revision]:
        return [entry for entry in self.server.journal.revisions if entry.code < 300]

    async def close(self) -> None:
        self.server.faults.clear()
        for candidate in self.candidates:
            await candidate.stop()
        await self.server.stop()


def random_fault(random: random.Random) -> Fault:
    does: FaultEffect = random.choice(
        [
            Delay(random.uniform(0.1, 4.0)),
            Hang(),
            RefuseRequest(409),
            RefuseRequest(429, retry_after=1),
            RefuseRequest(500),
            Cut("before"),
            Cut("after"),
            Cut("body"),
            Restart(),
        ]
    )
    return Fault(
        effect=does,
        kind=random.choice(["", "Lease", "ConfigMap"]),
        user=random.choice(["", "a", "b"]),
        probability=0.05 if isinstance(does, Restart) else random.uniform(0.1, 1.0),
    )


async def storm(sim: Sim) -> World:
    cluster = World(sim)
    await cluster.prepare()
    for name in ("a", "b", "a"):
        cluster.add_candidate(name)
    draw = sim.random_for("storm")
    while sim.clock.monotonic() < 180:
        active = cluster.server.faults.add(random_fault(draw))
        await sim.clock.sleep(draw.uniform(1.0, 15.0))
        if draw.random() < 0.7:
            cluster.server.faults.remove(active)
        if draw.random() < 0.2:
            cluster.server.faults.clear()
        if draw.random() < 0.2:
            await cluster.candidates[-2].stop()
            cluster.add_candidate(draw.choice("ab"))
    cluster.server.faults.clear()
    cluster.calm_since = sim.clock.now()
    await sim.clock.sleep(40)
    await cluster.close()
    return cluster


async def deaths(sim: Sim) -> list[float]:
    """Seconds without an effect, each time that a leader dies and another stands by."""
    cluster = World(sim)
    await cluster.prepare()
    leader = cluster.add_candidate("a")
    gaps: list[float] = []
    for name in ("b", "c", "d"):
        await sim.clock.sleep(sim.random.uniform(5.0, 15.0))
        heir = cluster.add_candidate(name)
        await sim.clock.sleep(sim.random.uniform(5.0, 15.0))
        assert leader.is_leading
        cluster.server.faults.add(Fault(effect=Hang(), user=leader.name))
        died = sim.clock.now()
        await leader.stop()
        await sim.clock.sleep(20)
        first = next(entry for entry in effects(cluster.journal) if entry.user == name)
        gaps.append(first.time - died)
        leader = heir
    await cluster.close()
    return gaps


def test_at_most_one_leads_under_faults_and_one_afterwards() -> None:
    handed_over = 0
    for seed in range(20):
        cluster = run(storm, seed=seed)
        assert not overlapping_tenures(cluster.candidates), seed
        assert not effects_out_of_term(cluster.journal), seed
        assert effects(cluster.journal, since=cluster.calm_since + 30), seed
        handed_over += len(successions(cluster.journal))
    assert handed_over > 40
