"""Build a cluster role: its settings, and its connections to the API server and the bus."""

from typing import Protocol, TypeVar

from libs.bus.connect import NatsSettings, connect_bus
from libs.bus.port import Bus
from libs.contracts.identities import Writer
from libs.kube.connect import connect
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.program import Role
from libs.runtime.service import Service


class ClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings that all cluster roles share."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Path; empty: from the environment, or in-cluster."""


S = TypeVar("S", bound=ClusterSettings)
S_contra = TypeVar("S_contra", bound=ClusterSettings, contravariant=True)


class RunClusterRole(Protocol[S_contra]):
    """The `run` of a cluster role: starts its tasks in `service` and returns."""

    async def __call__(
        self, settings: S_contra, /, *, env: Env, bus: Bus, kube: Transport, service: Service
    ) -> None: ...


def cluster_role(kind: type[S], run: RunClusterRole[S], *, writer: Writer) -> Role[S]:
    """Return a role that runs `run` on its own connections."""

    async def start(process: Process[S], service: Service) -> None:
        settings = process.settings
        kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
        bus = await connect_bus(
            process=process, service=service, settings=settings.nats, writer=writer
        )
        await run(settings, env=process.env, bus=bus, kube=kube, service=service)

    return Role(kind, start)
