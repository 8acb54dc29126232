"""Build a cluster role: its settings, its connections, and, if it leads, its term of leadership.

async def run(settings, *, env, bus, kube, service):
    leading = Leading(settings, kube=kube, manager=MANAGER, lease=LEASE, env=env)
    informers = Informers(leading.kube, namespace=settings.namespace, env=env)

    async def lead(fenced):
        ...                     controllers of one term, which write with `fenced`

    leading.follow(service, informers)
    leading.compete(service, lead)
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from libs.bus.connect import NatsSettings, connect_bus
from libs.bus.port import Bus
from libs.contracts.identities import Writer
from libs.kube.client import Kube
from libs.kube.connect import connect
from libs.kube.events import EventRecorder
from libs.kube.informer import Informer, InformerSet
from libs.kube.lease.election import Candidate
from libs.kube.lease.record import GPU_OPERATOR_LEASE, GpuOperatorDetector
from libs.kube.requests import Transport
from libs.kube.resources import LEASES
from libs.kube.views import Lease
from libs.runtime.env import Env
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.program import Role
from libs.runtime.service import Service


class ClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings that all cluster roles share."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Path; empty: from the environment, or in-cluster."""


class LeadingSettings(ClusterSettings, frozen=True, kw_only=True):
    """Settings of the roles of which one process leads."""

    namespace: str
    """Namespace of the operands and of the lease."""
    pod_name: str
    """Identity of this process in the lease."""


MAX_LEASE_AGE: Final = 30.0
"""Seconds after which a cached Lease must be verified before it is used."""

S = TypeVar("S", bound=ClusterSettings)
S_contra = TypeVar("S_contra", bound=ClusterSettings, contravariant=True)


class RunClusterRole(Protocol[S_contra]):
    """The `run` of a cluster role: starts its tasks in `service` and returns."""

    async def __call__(
        self, settings: S_contra, /, *, env: Env, bus: Bus, kube: Transport, service: Service
    ) -> None: ...


def cluster_role(kind: type[S], run: RunClusterRole[S], *, writer: Writer) -> Role[S]:
    """Return a role that runs `run` on its own connections.

    The API server comes before the bus, and so is closed after it: what arrives on the bus to the
    very end may still be written. A role that can do its work without the bus starts by itself.
    """

    async def start(process: Process[S], service: Service) -> None:
        settings = process.settings
        kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
        bus = await connect_bus(
            process=process, service=service, settings=settings.nats, writer=writer
        )
        await run(settings, env=process.env, bus=bus, kube=kube, service=service)

    return Role(kind, start)


def candidate_for(
    lease: str, settings: LeadingSettings, *, kube: Transport, manager: str, env: Env
) -> Candidate:
    """Return a candidate for the lease of a role."""
    return Candidate(
        kube,
        manager=manager,
        namespace=settings.namespace,
        lease=lease,
        identity=settings.pod_name,
        env=env,
    )


class LeadingInformers(InformerSet):
    """What a role that leads follows: its own kinds, and last the lease of a GPU Operator."""

    leases: Informer[Lease]

    def watch_gpu_operator(self) -> None:
        """Follow the lease of a GPU Operator, in any namespace."""
        self.leases = self.add(LEASES, fields=f"metadata.name={GPU_OPERATOR_LEASE}")

    async def why_operator_unknown(self) -> str:
        """Return why a GPU Operator may be active unseen; empty: its leases are current."""
        return await self.leases.verify_current() if self.leases.age > MAX_LEASE_AGE else ""


class Leading:
    """What every process of a role has of which one leads; a new leader finds it synced."""

    def __init__(
        self, settings: LeadingSettings, *, kube: Transport, manager: str, lease: str, env: Env
    ) -> None:
        self._clock = env.clock
        self._candidate = candidate_for(lease, settings, kube=kube, manager=manager, env=env)
        self.kube = self._candidate.kube
        """For reads, and for Events; only the client of a term may write other objects."""
        self.events = EventRecorder(kube=self.kube, env=env)
        self.foreign = GpuOperatorDetector()

    def follow(self, service: Service, informers: LeadingInformers) -> None:
        """Follow these until the service stops.

        The detector listens first: of a GPU Operator that is listed already it is not told again.
        """
        self.foreign.follow(informers.leases.cache, self._clock)
        informers.follow(service)

    def compete(self, service: Service, lead: Callable[[Kube], Awaitable[None]]) -> None:
        """Lead whenever the lease is free, until the service stops.

        This comes last but does not wait for what is followed: who has the lease may be asked at
        once, and each controller waits by itself for the sources that it decides from.
        """
        service.run_forever("events", self.events.run())
        service.run_forever("lead", self._candidate.run(lead))
