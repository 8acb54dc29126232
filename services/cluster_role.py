"""The main of a cluster role: its settings, its way to the API server and to the bus."""

from typing import Protocol, TypeVar

from libs.bus.connect import NatsSettings, connect_bus
from libs.bus.port import Bus
from libs.contracts.identities import Writer
from libs.kube.connect import connect
from libs.kube.transport import Transport
from libs.runtime.env import Env
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.program import Role
from libs.runtime.service import Service


class ClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """What every cluster role can be told; the settings of one are a subclass."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""


S = TypeVar("S", bound=ClusterSettings)
S_contra = TypeVar("S_contra", bound=ClusterSettings, contravariant=True)


class RunClusterRole(Protocol[S_contra]):
    """The `run` of a cluster role: start it in `service`, and return."""

    async def __call__(
        self, settings: S_contra, /, *, env: Env, bus: Bus, kube: Transport, service: Service
    ) -> None: ...


def cluster_role(kind: type[S], run: RunClusterRole[S], *, writer: Writer) -> Role[S]:
    """Return the role of a program that runs `run` on connections of its own."""

    async def start(process: Process[S], service: Service) -> None:
        settings = process.settings
        kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
        bus = await connect_bus(
            process=process, service=service, settings=settings.nats, writer=writer
        )
        await run(settings, env=process.env, bus=bus, kube=kube, service=service)

    return Role(kind, start)
