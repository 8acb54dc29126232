"""Sluice's agents on a simulated machine: each a service in the container rendered for it.

The kubelet starts and ends them as any container. A killed agent cannot reach bus, machine or disk
any more.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from importlib.metadata import version
from typing import Any, Final

import msgspec

from libs.bus.agent import AgentSettings
from libs.bus.journal import FileJournal
from libs.bus.port import Bus
from libs.contracts.identities import Identity, Writer
from libs.host.machine import Machine as Host
from libs.host.machine import Offload
from libs.policy.render.agents import STATE_DIR
from libs.runtime.clock import Clock
from libs.runtime.env import Env, SeededIds
from libs.runtime.fatal import Fatal
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service, ServicePhase
from libs.runtime.settings import SettingsError, load
from libs.testing.cluster.kubelet.container import KILLED, ContainerInstance, ProcessEvents
from libs.testing.cluster.views import EnvVar, Pod
from libs.testing.machines.agent_process import AgentKilled
from libs.testing.machines.machine import SimulatedMachine
from services.agent_frame import Given
from services.discovery.node import agent as discovery
from services.driver.node import agent as driver
from services.driver.node.agent import DriverAgentSettings
from services.driver.plugin import agent as plugin
from services.driver.plugin.settings import PluginSettings
from services.telemetry.node import agent as telemetry
from services.telemetry.node.agent import TelemetrySettings
from services.validator.node import agent as validator

ConnectAgent = Callable[[Service, Identity, Pod], Awaitable[Bus]]
"""Connect the agent of a pod for as long as its service lives."""

ServePages = Callable[[telemetry.Pages], AbstractAsyncContextManager[None]]
"""Serve the pages of an agent for as long as its service lives."""


AgentProgram = Callable[[Any, Given], Coroutine[Any, Any, telemetry.Pages | None]]
"""The `run` of an agent."""


class AgentKind(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's program, and its access to the machine."""

    settings: type[AgentSettings]
    run: AgentProgram
    changes: bool = False
    proves: bool = False


AGENT_KINDS: Final[Mapping[Writer, AgentKind]] = {
    Writer.DISCOVERY: AgentKind(settings=discovery.DiscoverySettings, run=discovery.run),
    Writer.DRIVER: AgentKind(settings=DriverAgentSettings, run=driver.run, changes=True),
    Writer.PLUGIN: AgentKind(settings=PluginSettings, run=plugin.run),
    Writer.TELEMETRY: AgentKind(settings=TelemetrySettings, run=telemetry.run),
    Writer.VALIDATOR: AgentKind(
        settings=validator.ValidatorSettings, run=validator.run, proves=True
    ),
}


class AgentEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment that all agents of one machine share."""

    machine: SimulatedMachine
    access: Offload
    connect: ConnectAgent
    serve_pages: ServePages | None
    """None: the pages of agents are not served."""
    cut: Callable[[Bus], None]
    clock: Clock
    random_for: Callable[[str], random.Random]
    node_uid: Callable[[], str]
    """Return the uid of the machine's current Node; in a cluster, an agent's token names it."""
    failed: Callable[[str], None]


class AgentContainer:
    """The process of an agent in a container."""

    def __init__(self, environment: AgentEnvironment, writer: Writer) -> None:
        self._environment = environment
        self._writer = writer
        self._kind = AGENT_KINDS[writer]
        self._service = Service(writer.value, clock=environment.clock, on_phase=self._phase_changed)
        self._events: ProcessEvents | None = None
        self._host: Host | None = None
        self._bus: Bus | None = None
        self._ended = False
        self.task: asyncio.Task[None] | None = None

    def begin(self, instance: ContainerInstance, events: ProcessEvents) -> None:
        kind, meta = self._kind, instance.pod.metadata
        self._events = events
        self._host = self._environment.machine.host(
            self._environment.access,
            comm=f"sluice-{self._writer}",
            pod_uid=meta.uid,
            container_id=instance.container_id,
            changes=kind.changes,
            proves=kind.proves,
        )
        name = f"{instance.node}/{self._writer} {instance.attempt}"
        self.task = asyncio.get_running_loop().create_task(
            self._run(instance, self._host, name), name=name
        )

    def stop(self, instance: ContainerInstance) -> None:
        self._service.stop(f"pod {instance.pod.metadata.name} ends")

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self._ended and not self.task.done()

    @property
    def is_finished(self) -> bool:
        return self.task is not None and self.task.done()

    def kill(self) -> None:
        """End the process as SIGKILL does."""
        self._cut_off()
        if self._events is not None:
            self._events.exit(KILLED)

    def end(self, instance: ContainerInstance) -> None:  # noqa: ARG002  (of the interface)
        self._cut_off()

    def _cut_off(self) -> None:
        """Cut the agent off from bus and machine, then cancel it."""
        self._ended = True
        if self._bus is not None:
            self._environment.cut(self._bus)
        if self._host is not None:
            self._environment.machine.kill(self._host)
        if self.task is not None:
            self.task.cancel()

    async def _run(self, instance: ContainerInstance, host: Host, name: str) -> None:
        code = 0
        try:
            await self._run_service(instance, host, name)
        except (Fatal, SettingsError) as error:
            if self._ended:
                return
            self._environment.failed(f"{name}: {error}")
            code = 1
        if self._events is not None:
            self._events.exit(code)

    async def _run_service(self, instance: ContainerInstance, host: Host, name: str) -> None:
        environment, service, writer = self._environment, self._service, self._writer
        environ = agent_environ(instance.pod, instance.container, node_uid=environment.node_uid())
        path = environment.machine.root / journal_path(writer)
        settings = load(self._kind.settings, environ=environ)
        settings = msgspec.structs.replace(settings, state_dir=path.parent)
        with suppress(AgentKilled):
            async with service:
                identity = Identity(
                    cluster=settings.nats_settings.cluster, writer=writer, node=settings.node
                )
                self._bus = bus = await environment.connect(service, identity, instance.pod)
                agent_random = environment.random_for(name)
                env = Env(
                    clock=environment.clock,
                    random=agent_random,
                    ids=SeededIds(agent_random),
                    metrics=Metrics(version=version("sluice")),
                )
                journal = FileJournal(path, run=host.offload.run)
                given = Given(bus=bus, host=host, journal=journal, env=env, service=service)
                pages = await self._kind.run(settings, given)
                if pages is not None and environment.serve_pages is not None:
                    await service.enter("pages", environment.serve_pages(pages))

    def _phase_changed(self, phase: ServicePhase) -> None:
        if self._events is not None and not self._ended:
            self._events.ready(phase is ServicePhase.READY)


def journal_path(writer: Writer) -> str:
    """Return the path of an agent's journal below the machine's root."""
    return f"{STATE_DIR}/{writer}/journal".lstrip("/")


def writer_of(pod: Pod, container: str) -> Writer | None:
    """Return the agent that runs in this container, if any."""
    _, _, name = container.partition("sluice-")
    return next(
        (writer for writer in AGENT_KINDS if writer.value == name and pod.spec.node_name), None
    )


def agent_environ(pod: Pod, container: str, *, node_uid: str) -> dict[str, str]:
    """Return the environment of an agent's program, with the Node's uid instead of its token."""
    (spec,) = (each for each in pod.spec.containers if each.name == container)
    environ = {variable.name: _value(variable, pod) for variable in spec.env}
    environ.pop("SLUICE_TOKEN_FILE", None)
    environ.pop("SLUICE_DEVICE_PLUGINS", None)  # a simulated kubelet has no sockets
    return {**environ, "SLUICE_NODE_UID": node_uid}


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
