"""Candidates for a lease, each on a machine of its own that may freeze or die, and their judge."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import structlog

from libs.contracts.journal import Revision
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.lease.election import LeaderElector
from libs.kube.lease.term import FencedTransport, NotLeading, Term
from libs.kube.requests import Request, Response, Transport
from libs.kube.resources import CONFIG_MAPS
from libs.testing.simulation import Sim, make_env
from tests.unit.kube.fake_lease_server import LEASE, NAMESPACE

Body = Callable[["LeaseCandidate", Term, Kube], Awaitable[None]]


class FreezableMachine:
    """A clock and a wire that give nothing back while the machine is frozen; its time runs on."""

    def __init__(self, sim: Sim, transport: Transport) -> None:
        self._clock = sim.clock
        self._transport = transport
        self._thaws = 0.0

    def freeze(self, seconds: float) -> None:
        self._thaws = self.monotonic() + seconds

    def __str__(self) -> str:
        return str(self._transport)

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._thawed()

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        async with self._transport.open(request) as answer:
            await self._thawed()
            yield answer

    async def _thawed(self) -> None:
        while (left := self._thaws - self.monotonic()) > 0:
            await self._clock.sleep(left)


class Tenure(msgspec.Struct):
    """A body that was in office."""

    candidate: str
    begun: float
    over: float = float("inf")


class LeaseCandidate:
    """A process: leads whenever it can, and then does `body`."""

    def __init__(self, sim: Sim, name: str, transport: Transport, body: Body) -> None:
        self.sim = sim
        self.name = name
        self.machine = FreezableMachine(sim, transport)
        self.random = sim.random_for(name)
        self.lease = LeaderElector(
            kube=Kube(self.machine, manager="sluice", clock=self.machine),
            namespace=NAMESPACE,
            name=LEASE,
            identity=name,
            env=make_env(clock=self.machine, random=self.random, ids=sim.ids),
        )
        self.terms: list[Term] = []
        self.stays: list[Tenure] = []
        self.losses: list[str] = []
        self._body = body
        self._task = asyncio.create_task(self._run(), name=name)

    @property
    def is_leading(self) -> bool:
        return any(term.remaining() for term in self.terms)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def ended(self) -> None:
        """By itself, with its error."""
        await self._task

    async def _run(self) -> None:
        while True:
            with suppress(NotLeading):
                await self._lead()

    async def _lead(self) -> None:
        try:
            async with self.lease.lead() as term:
                self.terms.append(term)
                stay = Tenure(self.name, self.machine.monotonic())
                self.stays.append(stay)
                fenced = FencedTransport(self.machine, term, clock=self.machine)
                try:
                    await self._body(self, term, Kube(fenced, manager="sluice", clock=self.machine))
                finally:
                    stay.over = self.machine.monotonic()
        except NotLeading as lost:
            self.losses.append(str(lost))
            raise


async def write_effect(candidate: LeaseCandidate, term: Term, kube: Kube, count: int) -> None:
    """One effect, that names who had it and in which term."""
    author = candidate.lease.holder.replace("_", "-")
    wanted = {
        "metadata": {"name": f"{author}-{len(candidate.terms)}-{count}"},
        "data": {"holder": candidate.lease.holder, "transitions": str(term.transitions)},
    }
    await kube.create(CONFIG_MAPS, wanted, namespace=NAMESPACE)


async def write_forever(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
    """Has effects for ever, and takes no failure for an answer, `NotLeading` included."""
    for count in range(1_000_000):
        with suppress(KubeError):
            await write_effect(candidate, term, kube, count)
        await candidate.machine.sleep(candidate.random.uniform(0.1, 0.7))


async def idle(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
    await asyncio.Event().wait()


def overlapping_tenures(candidates: list[LeaseCandidate]) -> list[tuple[Tenure, Tenure]]:
    """Bodies that were in office together."""
    stays = sorted(
        (stay for candidate in candidates for stay in candidate.stays),
        key=lambda stay: stay.begun,
    )
    return [
        (one, other)
        for number, one in enumerate(stays)
        for other in stays[number + 1 :]
        if other.begun < one.over
    ]


def effects_out_of_term(journal: list[Revision]) -> list[Revision]:
    """Effects that were carried out when their author's term was not the latest in the record."""
    spec: dict[str, Any] = {}
    found: list[Revision] = []
    for revision in journal:
        after = {path.rpartition(".")[2]: pair[1] for path, pair in revision.changed.items()}
        if revision.kind == "Lease":
            spec |= after
        elif revision.kind == "ConfigMap" and (
            after["holder"] != spec.get("holderIdentity")
            or after["transitions"] != str(spec.get("leaseTransitions"))
        ):
            found.append(revision)
    return found


def effects(journal: list[Revision], *, since: float = 0.0) -> list[Revision]:
    return [entry for entry in journal if entry.kind == "ConfigMap" and entry.time >= since]


def successions(journal: list[Revision]) -> list[Revision]:
    """Commits by which the lease got another holder."""
    return [
        entry
        for entry in journal
        if entry.kind == "Lease"
        for path, pair in entry.changed.items()
        if path.rpartition(".")[2] == "holderIdentity" and pair[1]
    ]


@pytest.fixture
def silence_logs() -> Iterator[None]:
    """Nothing is logged: storms say much."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()
