"""Candidates for a lease on a simulated API server, each on a machine that may freeze or die."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import combinations
from typing import Any

import msgspec
import pytest
import structlog

from libs.contracts.journal import Revision, Verb
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.lease.election import LeaderElector
from libs.kube.lease.term import FencedTransport, NotLeading, Term
from libs.kube.requests import Request, Response, Transport
from libs.kube.resources import CONFIG_MAPS, LEASES
from libs.testing.apiserver.faults import ActiveFault, Fault, FaultEffect, Hang
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, make_env
from tests.unit.kube.world import SimWorld

NAMESPACE = "default"
LEASE = "scheduler"

Body = Callable[["LeaseCandidate", Term, Kube], Awaitable[None]]


class FreezableMachine:
    """A clock and a transport whose calls return only after the machine is thawed."""

    def __init__(self, sim: Sim, transport: Transport) -> None:
        self._clock = sim.clock
        self._transport = transport
        self._frozen_until = 0.0
        self.requests: list[tuple[float, Request]] = []
        """Each request, with the time at which it was sent."""

    def freeze(self, seconds: float) -> None:
        self._frozen_until = self.monotonic() + seconds

    def __str__(self) -> str:
        return str(self._transport)

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._not_frozen()

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        self.requests.append((self.monotonic(), request))
        async with self._transport.open(request) as response:
            await self._not_frozen()
            yield response

    async def _not_frozen(self) -> None:
        while (left := self._frozen_until - self.monotonic()) > 0:
            await self._clock.sleep(left)


class Tenure(msgspec.Struct):
    """The time during which a candidate's body ran."""

    candidate: str
    start: float
    end: float = float("inf")


class LeaseCandidate:
    """A process that runs `body` whenever it leads."""

    def __init__(self, sim: Sim, name: str, transport: Transport, body: Body) -> None:
        self.name = name
        self.machine = FreezableMachine(sim, transport)
        self.random = sim.random_for(name)
        self.elector = LeaderElector(
            kube=Kube(self.machine, manager="sluice", clock=self.machine),
            namespace=NAMESPACE,
            name=LEASE,
            identity=name,
            env=make_env(clock=self.machine, random=self.random, ids=sim.ids),
        )
        self.terms: list[Term] = []
        self.tenures: list[Tenure] = []
        self.losses: list[str] = []
        self._body = body
        self._task = asyncio.create_task(self._run(), name=name)

    @property
    def is_leading(self) -> bool:
        return any(term.remaining() for term in self.terms)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def failed(self) -> None:
        """Wait for the candidate's error, and raise it."""
        await self._task

    async def _run(self) -> None:
        while True:
            try:
                async with self.elector.lead() as term:
                    await self._lead(term)
            except NotLeading as lost:
                self.losses.append(str(lost))

    async def _lead(self, term: Term) -> None:
        self.terms.append(term)
        tenure = Tenure(self.name, self.machine.monotonic())
        self.tenures.append(tenure)
        fenced = FencedTransport(self.machine, term, clock=self.machine)
        try:
            await self._body(self, term, Kube(fenced, manager="sluice", clock=self.machine))
        finally:
            tenure.end = self.machine.monotonic()


async def write_effect(candidate: LeaseCandidate, term: Term, kube: Kube, count: int) -> None:
    """Create an object with the holder and its term."""
    holder = candidate.elector.holder
    wanted = {
        "metadata": {"name": f"{holder.replace('_', '-')}-{len(candidate.terms)}-{count}"},
        "data": {"holder": holder, "transitions": str(term.transitions)},
    }
    await kube.create(CONFIG_MAPS, wanted, namespace=NAMESPACE)


async def write_forever(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
    """Write until cancelled, whatever fails, `NotLeading` included."""
    for count in range(1_000_000):
        with suppress(KubeError):
            await write_effect(candidate, term, kube, count)
        await candidate.machine.sleep(candidate.random.uniform(0.1, 0.7))


async def idle(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
    await asyncio.Event().wait()


class LeaseWorld(SimWorld):
    """A server, its lease without a holder, and candidates.

    With `overlaps`, bodies may run concurrently, as on frozen machines.
    """

    def __init__(self, sim: Sim, *, with_lease: bool = True, overlaps: bool = False) -> None:
        super().__init__(sim)
        self._with_lease = with_lease
        self._overlaps = overlaps
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.admin = Kube(self.server.transport(user="admin"), manager="admin", clock=sim.clock)
        self.candidates: dict[str, LeaseCandidate] = {}

    async def start(self) -> None:
        if self._with_lease:
            await self.create_lease()

    async def create_lease(self, **spec: Any) -> None:
        body = {"metadata": {"name": LEASE}, "spec": spec}
        await self.admin.create(LEASES, body, namespace=NAMESPACE)

    async def delete_lease(self) -> None:
        await self.admin.request("DELETE", LEASES.path(namespace=NAMESPACE, name=LEASE))

    async def lease_spec(self) -> dict[str, Any]:
        path = LEASES.path(namespace=NAMESPACE, name=LEASE)
        return msgspec.json.decode(await self.admin.request("GET", path))["spec"]

    def add_candidate(self, name: str, body: Body = idle) -> LeaseCandidate:
        transport = self.server.transport(user=name)
        self.candidates[name] = LeaseCandidate(self.sim, name, transport, body)
        return self.candidates[name]

    def fail(self, *effects: FaultEffect, user: str = "", kind: str = "Lease") -> None:
        """Add faults to all requests of this user for this kind."""
        for effect in effects:
            self.server.faults.add(Fault(effect=effect, user=user, kind=kind))

    def fail_writes(self, effect: FaultEffect, *, times: int | None = None) -> ActiveFault:
        """Add a fault to the candidates' writes of the lease."""
        fault = Fault(effect=effect, kind="Lease", verbs=("create", "patch"), times=times)
        return self.server.faults.add(fault)

    async def kill(self, candidate: LeaseCandidate) -> None:
        """End the process without a release."""
        self.fail(Hang(), user=candidate.name, kind="")
        await candidate.stop()

    async def until(self, seconds: float) -> None:
        await self.clock.sleep(seconds - self.clock.monotonic())

    async def close(self) -> None:
        """Stop all; check that no effect was out of its term, and no two bodies ran at once."""
        for candidate in self.candidates.values():
            await candidate.stop()
        await self.server.stop()
        assert self.effects_out_of_term() == []
        assert self._overlaps or self.overlapping_tenures() == []

    @property
    def journal(self) -> list[Revision]:
        """The granted writes."""
        return [entry for entry in self.server.journal.revisions if entry.code < 300]

    def time_of(self, entry: Revision) -> float:
        """Return the time of an entry by the monotonic clock."""
        return entry.time - (self.clock.now() - self.clock.monotonic())

    def effects(self, *, since: float = 0.0) -> list[Revision]:
        return [
            entry
            for entry in self.journal
            if entry.kind == "ConfigMap" and self.time_of(entry) >= since
        ]

    def successions(self) -> list[Revision]:
        """Return the writes that gave the lease to a candidate."""
        path = "spec.holderIdentity"
        leases = [entry for entry in self.journal if entry.kind == "Lease"]
        return [entry for entry in leases if path in entry.changed and entry.changed[path][1]]

    def effects_out_of_term(self) -> list[Revision]:
        """Return the effects of another term than the latest in the lease at that time."""
        spec: dict[str, Any] = {}
        found: list[Revision] = []
        for entry in self.journal:
            after = {path.rpartition(".")[2]: pair[1] for path, pair in entry.changed.items()}
            if entry.kind == "Lease":
                spec |= {} if entry.verb is Verb.DELETE else after
            elif entry.kind == "ConfigMap" and (
                after["holder"] != spec.get("holderIdentity")
                or after["transitions"] != str(spec.get("leaseTransitions"))
            ):
                found.append(entry)
        return found

    def overlapping_tenures(self) -> list[tuple[Tenure, Tenure]]:
        tenures = sorted(
            (tenure for candidate in self.candidates.values() for tenure in candidate.tenures),
            key=lambda tenure: tenure.start,
        )
        pairs = combinations(tenures, 2)
        # Both ways: a body that ends in the instant in which it began is over before the next one.
        return [
            (earlier, later)
            for earlier, later in pairs
            if later.start < earlier.end and earlier.start < later.end
        ]


@pytest.fixture
def silence_logs() -> Iterator[None]:
    """Log nothing: faults cause many lines."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()
