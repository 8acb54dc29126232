"""Our agents on a simulated machine: each a service in the container that was rendered for it.

The kubelet starts and ends them as it does any container. One that is killed reaches neither bus,
machine nor disk any more. Must not know how a bus is made, nor whether time is real.
"""

import asyncio
import random as chance
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from importlib.metadata import version
from typing import Any, Final, Protocol

import msgspec

from libs.bus.agent_settings import AgentSettings
from libs.bus.journal import FileJournal, Journal
from libs.bus.port import Bus
from libs.contracts.identities import Identity, Writer
from libs.host.machine import Machine as Host
from libs.host.machine import Offload
from libs.policy.render.agents import STATE_DIR
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.runtime.fatal import Fatal
from libs.runtime.ids import SeededIds
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service, ServicePhase
from libs.runtime.settings import SettingsError, load
from libs.testing.cluster.kubelet.container import KILLED
from libs.testing.cluster.kubelet.container_process import ContainerInstance, ProcessEvents
from libs.testing.cluster.views import EnvVar, Pod
from libs.testing.machines.agent_process import AgentKilled
from libs.testing.machines.machine import SimulatedMachine
from services.discovery.node import agent as discovery
from services.driver.node import agent as driver
from services.driver.node.agent import DriverAgentSettings
from services.telemetry.node import agent as telemetry
from services.telemetry.node.agent import TelemetrySettings
from services.validator.node import agent as validator

ConnectAgent = Callable[[Service, Identity], Awaitable[Bus]]
"""Connects an agent for as long as its service lives."""

ServePages = Callable[[telemetry.Pages], AbstractAsyncContextManager[None]]
"""Serves the pages of an agent for as long as its service lives."""


class AgentProgram(Protocol):
    """The `run` of an agent."""

    async def __call__(
        self,
        settings: Any,
        *,
        bus: Bus,
        host: Host,
        journal: Journal,
        env: Env,
        service: Service,
    ) -> telemetry.Pages | None: ...


class AgentKind(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, and what it is given of its machine."""

    settings: type[AgentSettings]
    run: AgentProgram
    changes: bool = False
    proves: bool = False


AGENT_KINDS: Final[Mapping[Writer, AgentKind]] = {
    Writer.DISCOVERY: AgentKind(settings=discovery.DiscoverySettings, run=discovery.run),
    Writer.DRIVER: AgentKind(settings=DriverAgentSettings, run=driver.run, changes=True),
    Writer.TELEMETRY: AgentKind(settings=TelemetrySettings, run=telemetry.run),
    Writer.VALIDATOR: AgentKind(
        settings=validator.ValidatorSettings, run=validator.run, proves=True
    ),
}


class AgentEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What all agents of one machine live on."""

    machine: SimulatedMachine
    access: Offload
    connect: ConnectAgent
    serve_pages: ServePages | None
    """None: nobody has a port for an agent's pages."""
    cut: Callable[[Bus], None]
    clock: Clock
    random_for: Callable[[str], chance.Random]
    node_uid: Callable[[], str]
    """Of the Node that stands for this machine now: in a cluster, an agent's token names it."""
    failed: Callable[[str], None]


class AgentContainer:
    """One process of an agent, in one container."""

    def __init__(self, ground: AgentEnvironment, writer: Writer) -> None:
        self._ground = ground
        self._writer = writer
        self._kind = AGENT_KINDS[writer]
        self._service = Service(writer.value, clock=ground.clock, on_phase=self._moved)
        self._voice: ProcessEvents | None = None
        self._host: Host | None = None
        self._bus: Bus | None = None
        self._ended = False
        self.task: asyncio.Task[None] | None = None

    def begin(self, instance: ContainerInstance, voice: ProcessEvents) -> None:
        """The container has started."""
        kind, meta = self._kind, instance.pod.metadata
        self._voice = voice
        self._host = self._ground.machine.host(
            self._ground.access,
            comm=f"sluice-{self._writer}",
            pod_uid=meta.uid,
            container_id=instance.container_id,
            changes=kind.changes,
            proves=kind.proves,
        )
        name = f"{instance.node}/{self._writer} {instance.attempt}"
        self.task = asyncio.get_running_loop().create_task(
            self._to_its_end(instance, self._host, name), name=name
        )

    def stop(self, instance: ContainerInstance) -> None:
        """It is asked to end."""
        self._service.stop(f"pod {instance.pod.metadata.name} ends")

    @property
    def is_running(self) -> bool:
        """Whether it has begun, and nothing has ended it."""
        return self.task is not None and not self._ended and not self.task.done()

    @property
    def is_finished(self) -> bool:
        """Whether nothing of it is left to be waited for."""
        return self.task is not None and self.task.done()

    def kill(self) -> None:
        """As by SIGKILL."""
        self._cut_off()
        if self._voice is not None:
            self._voice.exit(KILLED)

    def end(self, instance: ContainerInstance) -> None:  # noqa: ARG002  (a kubelet says which one)
        """It is gone, however it ended."""
        self._cut_off()

    def _cut_off(self) -> None:
        """First nothing of it arrives any more, then it does nothing more."""
        self._ended = True
        if self._bus is not None:
            self._ground.cut(self._bus)
        if self._host is not None:
            self._ground.machine.kill(self._host)
        if self.task is not None:
            self.task.cancel()

    async def _to_its_end(self, instance: ContainerInstance, host: Host, name: str) -> None:
        code = 0
        try:
            await self._live(instance, host, name)
        except (Fatal, SettingsError) as error:
            if self._ended:
                return
            self._ground.failed(f"{name}: {error}")
            code = 1
        if self._voice is not None:
            self._voice.exit(code)

    async def _live(self, instance: ContainerInstance, host: Host, name: str) -> None:
        ground, service, writer = self._ground, self._service, self._writer
        environ = agent_environ(instance.pod, instance.container, node_uid=ground.node_uid())
        settings = load(self._kind.settings, environ=environ)
        place = ground.machine.root / journal_path(writer)
        with suppress(AgentKilled):
            async with service:
                identity = Identity(
                    cluster=settings.nats_settings.cluster, writer=writer, node=settings.node
                )
                self._bus = bus = await ground.connect(service, identity)
                random = ground.random_for(name)
                env = Env(
                    clock=ground.clock,
                    random=random,
                    ids=SeededIds(random),
                    metrics=Metrics(version=version("sluice")),
                )
                pages = await self._kind.run(
                    settings,
                    bus=bus,
                    host=host,
                    journal=FileJournal(place, run=host.offload.do),
                    env=env,
                    service=service,
                )
                if pages is not None and ground.serve_pages is not None:
                    await service.enter("pages", ground.serve_pages(pages))

    def _moved(self, phase: ServicePhase) -> None:
        if self._voice is not None and not self._ended:
            self._voice.ready(phase is ServicePhase.READY)


def journal_path(writer: Writer) -> str:
    """Where this agent keeps its journal, below the machine's root."""
    return f"{STATE_DIR}/{writer}/journal".lstrip("/")


def writer_of(pod: Pod, container: str) -> Writer | None:
    """Which of our agents lives in this container of an agent's pod, if one does."""
    _, _, name = container.partition("sluice-")
    return next((each for each in AGENT_KINDS if each.value == name and pod.spec.node_name), None)


def agent_environ(pod: Pod, container: str, *, node_uid: str) -> dict[str, str]:
    """What its program finds in its environment; the token's claims stand there as a setting."""
    (wanted,) = (each for each in pod.spec.containers if each.name == container)
    found = {each.name: _value(each, pod) for each in wanted.env}
    found.pop("SLUICE_TOKEN_FILE", None)
    return {**found, "SLUICE_NODE_UID": node_uid}


def _value(variable: EnvVar, pod: Pod) -> str:
    source = variable.value_from
    if source is None or source.field_ref is None:
        return variable.value
    meta = pod.metadata
    fields = {
        "spec.nodeName": pod.spec.node_name,
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
    }
    return fields.get(source.field_ref.field_path, "")
