"""The agents of a node as a script: they do what they are told, on the real desk.

There is no machine behind them: a driver is what the container of its pod says.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from libs.bus.agent import Agent
from libs.bus.commands.checks import CheckHandler
from libs.bus.commands.executor import CommandHandler, Op, OpDone, OpFailed
from libs.contracts.commands import (
    Check,
    CheckBody,
    CheckKind,
    CommandKind,
    Idle,
    PreflightCheck,
    Proven,
    Swap,
    Validate,
)
from libs.contracts.facts import Facts, Gate, LoadedDriver
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.reports import Evidence, Finding, Preflight, Usage, ValidationStep
from libs.policy.render.driver import APP
from libs.runtime.clock import Clock
from libs.runtime.service import Service
from libs.testing.bus import LocalServer
from libs.testing.bus.local_bus import LocalBus
from libs.testing.bus.memory_journal import MemoryJournal
from libs.testing.cluster.kubelet.container import (
    ContainerInstance,
    ContainerProcess,
    ProcessEvents,
)
from libs.testing.cluster.kubelet.hardware import KERNEL
from libs.testing.cluster.views import Pod
from libs.testing.simulation import Sim, make_env

DRIVER_CONTAINER = "nvidia-driver-ctr"
LOADING = 2.0
COMPONENTS = (Writer.DISCOVERY, Writer.DRIVER, Writer.VALIDATOR, Writer.TELEMETRY)


@dataclass
class ScriptedMachine:
    """What the agents of one node share."""

    name: str
    uid: str = ""
    boot_id: str = ""
    at_gate: dict[str, tuple[str, ProcessEvents]] = field(
        default_factory=dict[str, tuple[str, ProcessEvents]]
    )
    """At the gate, by pod uid: label, and how it hears that it may go on."""
    loaded: LoadedDriver | None = None
    running: str = ""
    """The pod whose driver it is."""
    proven: Proven | None = None
    findings: tuple[Finding, ...] = ()
    fails: bool = False
    """Its validation does."""
    changed: Callable[[], None] = lambda: None
    swaps: int = 0
    unloads: int = 0


class GateContainer:
    """The gate of a driver pod: it waits for a word."""

    def __init__(self, machine: ScriptedMachine, pod: Pod) -> None:
        self._machine = machine
        self._label = pod.metadata.labels[DRIVER_LABEL]
        self._uid = pod.metadata.uid

    def begin(self, instance: ContainerInstance, voice: ProcessEvents) -> None:
        """It asks."""
        self._machine.at_gate[self._uid] = (self._label, voice)
        self._machine.changed()

    def stop(self, instance: ContainerInstance) -> None:
        """It goes without."""
        self.end(instance)

    def end(self, instance: ContainerInstance) -> None:
        """It asks no more."""
        self._machine.at_gate.pop(self._uid, None)


class DriverContainer:
    """Loads its modules, and is ready then."""

    def __init__(self, machine: ScriptedMachine, pod: Pod, clock: Clock) -> None:
        self._machine = machine
        self._uid = pod.metadata.uid
        self._label = pod.metadata.labels[DRIVER_LABEL]
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._voice: ProcessEvents | None = None

    def begin(self, instance: ContainerInstance, voice: ProcessEvents) -> None:
        """It begins to load."""
        self._voice = voice
        self._task = asyncio.get_running_loop().create_task(self._load(voice))

    async def _load(self, voice: ProcessEvents) -> None:
        await self._clock.sleep(LOADING)
        machine = self._machine
        machine.loaded = LoadedDriver(version=self._label[:6], loaded_at=self._clock.now())
        machine.running = self._uid
        voice.ready(True)
        machine.changed()

    def stop(self, instance: ContainerInstance) -> None:
        """It ends at once; its modules stay."""
        self.end(instance)
        if self._voice is not None:
            self._voice.exit(0)

    def end(self, instance: ContainerInstance) -> None:
        """It is gone."""
        if self._task is not None:
            self._task.cancel()


class ScriptedAgents:
    """All agents of all nodes."""

    def __init__(self, sim: Sim, server: LocalServer) -> None:
        self._sim = sim
        self._server = server
        self.machines: dict[str, ScriptedMachine] = {}
        self._lives: list[tuple[Service, asyncio.Task[None], LocalBus, MemoryJournal]] = []

    def occupants(self, pod: Pod, container: str) -> ContainerProcess | None:
        """Who lives in a container."""
        machine = self.machines.get(pod.spec.node_name)
        if machine is None or pod.metadata.labels.get("app") != APP:
            return None
        if container == "gate":
            return GateContainer(machine, pod)
        if container == DRIVER_CONTAINER:
            return DriverContainer(machine, pod, self._sim.clock)
        return None

    def start(
        self, machine: ScriptedMachine, *, components: tuple[Writer, ...] = COMPONENTS
    ) -> None:
        """The agents of a Node that is there."""
        for part in components:
            bus = self._server.connect(Identity(writer=part, node=machine.name))
            journal = MemoryJournal(list[Entry](), pause=lambda: self._sim.clock.sleep(0.001))
            service = Service(f"{part} of {machine.name}", clock=self._sim.clock)
            life = self._live(service, bus, journal, machine, part)
            task = self._sim.loop.create_task(life, name=f"{part} of {machine.name}")
            self._lives.append((service, task, bus, journal))

    async def stop(self) -> None:
        """All of them."""
        for service, _, bus, journal in self._lives:
            bus.kill()
            journal.kill()
            service.stop("the test is over")
        for _, task, _, _ in self._lives:
            await asyncio.wait({task})
        self._lives.clear()

    async def _live(
        self,
        service: Service,
        bus: LocalBus,
        journal: MemoryJournal,
        machine: ScriptedMachine,
        part: Writer,
    ) -> None:
        async with service:
            random = self._sim.random_for(f"{part} of {machine.name}")
            script = AgentScript(machine, self._sim.clock)
            agent = Agent(
                bus=bus,
                env=make_env(clock=self._sim.clock, random=random),
                journal=journal,
                node_uid=machine.uid,
                boot_id=machine.boot_id,
                handlers=script.handlers(part),
                checks=script.checks(part),
            )
            script.agent = agent
            await agent.open()
            agent.start(service)
            if part is Writer.DRIVER:
                machine.changed = script.report
                script.report()


class AgentScript:
    """What one agent does."""

    agent: Agent

    def __init__(self, machine: ScriptedMachine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock

    def handlers(self, part: Writer) -> dict[CommandKind, CommandHandler]:
        """By kind, what this agent knows."""
        known: dict[CommandKind, CommandHandler] = {
            CommandKind.QUIESCE: self._rest,
            CommandKind.IDLE: self._rest,
        }
        if part is Writer.DRIVER:
            known |= {CommandKind.IDLE: self._idle, CommandKind.SWAP: self._swap}
        if part is Writer.VALIDATOR:
            known[CommandKind.VALIDATE] = self._validate
        return known

    def checks(self, part: Writer) -> dict[CheckKind, CheckHandler]:
        """The driver agent's."""
        return {CheckKind.PREFLIGHT: self._preflight} if part is Writer.DRIVER else {}

    def report(self) -> None:
        """Tell what there is; open the gate to what is proven."""
        machine = self._machine
        self.agent.reporter.report(Facts(driver=machine.loaded, gate=Gate()))
        self.agent.reporter.report(Usage())
        for label, voice in list(machine.at_gate.values()):
            if machine.proven is not None and machine.proven.label == label:
                voice.exit(0)

    async def _rest(self, _op: Op) -> OpDone:
        return OpDone()

    async def _idle(self, op: Op) -> OpDone:
        assert isinstance(op.body, Idle)
        self._machine.proven = op.body.proven
        self.report()
        return OpDone()

    async def _preflight(self, check: Check, body: CheckBody) -> Preflight:
        assert isinstance(body, PreflightCheck)
        return Preflight(check=check.id, label=body.label, findings=self._machine.findings)

    async def _swap(self, op: Op) -> OpDone | OpFailed:
        body, machine = op.body, self._machine
        assert isinstance(body, Swap)
        machine.swaps += 1
        machine.proven = None
        if machine.loaded is not None and not body.keep and machine.running == body.old_pod_uid:
            await op.checkpoint("unload")
            await self._clock.sleep(1.0)
            machine.loaded, machine.running = None, ""
            machine.unloads += 1
            self.report()
        await op.checkpoint("gate")
        while True:
            op.raise_if_superseded()
            for uid, (label, voice) in list(machine.at_gate.items()):
                if label == body.label and uid != body.old_pod_uid:
                    voice.exit(0)
            if machine.loaded is not None and machine.running not in ("", body.old_pod_uid):
                break
            await self._clock.sleep(0.1)
        self.report()
        return OpDone()

    async def _validate(self, op: Op) -> OpDone | OpFailed:
        body, machine, command = op.body, self._machine, op.command
        assert isinstance(body, Validate)
        await self._clock.sleep(1.0)
        passed = not machine.fails
        step = ValidationStep(name="driver", passed=passed)
        self.agent.reporter.report(
            Evidence(
                epoch=command.epoch,
                token=command.token,
                op=command.op,
                passed=passed,
                label=body.label,
                node_uid=machine.uid,
                boot_id=machine.boot_id,
                kernel=KERNEL,
                driver_pod_uid=body.pod_uid,
                driver_started=body.started,
                driver_version=machine.loaded.version if machine.loaded else "",
                driver_digest="none",
                runtime_digest="none",
                mig_digest="none",
                steps=(step,),
                at=self._clock.now(),
            )
        )
        return OpDone() if passed else OpFailed("driver", "it does not compute")
