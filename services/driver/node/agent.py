"""The driver agent of a node: commands, gate, checks and reports of one machine.

It is the only component that changes the machine's driver, and does so by command alone.
"""

import os
from collections import Counter
from functools import partial
from typing import Final

from msgspec.structs import replace

from libs.bus.agent import AgentSettings
from libs.bus.commands.executor import CommandHandler, Op, OpDone, OpFailed
from libs.bus.reporter import Reporter
from libs.contracts.commands import CheckKind, CommandKind
from libs.contracts.facts import Facts, Gate, LoadedDriver
from libs.contracts.reports import PodUse, Usage
from libs.host import diagnosing, gate, host_driver, modules
from libs.host.linux import RealKernelForbidden, RealLinux
from libs.host.machine import Machine
from libs.host.module_log import ModuleLog
from libs.host.nri.plugin import SOCKET, NriPlugin
from libs.host.runtimes.common import HANDLERS
from libs.host.runtimes.live import CriRuntime
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal
from libs.runtime.logs import logger
from services.agent_frame import Given
from services.driver.node.annotations import AnnotatedDevices
from services.driver.node.artefacts import ArtefactKeeper
from services.driver.node.checks import Checks
from services.driver.node.gate_keeper import GateKeeper
from services.driver.node.host_loader import HostLoader
from services.driver.node.inspection import Inspection, inspect_machine
from services.driver.node.install import InstallHandler
from services.driver.node.last_proven import LastProven, ProofFile
from services.driver.node.mig import MigHandler
from services.driver.node.removal import OldDriver
from services.driver.node.runtime import RuntimeKeeper
from services.driver.node.runtime_steps import RuntimeSettings
from services.driver.node.swap import SwapHandler
from services.driver.node.toolkit import Toolkit

_log = logger()

INTERVAL: Final = 5.0
"""Seconds between two inspections: the order of upgrades depends on them, never their safety."""


class DriverReporter:
    def __init__(
        self,
        *,
        machine: Machine,
        reporter: Reporter,
        gate_keeper: GateKeeper,
        toolkit: Toolkit,
        runtime: RuntimeKeeper,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._reporter = reporter
        self._gate_keeper = gate_keeper
        self._toolkit = toolkit
        self._runtime = runtime
        self._clock = clock
        self._module_log = ModuleLog(machine.tree)
        self._facts: Facts | None = None
        self._usage: Usage | None = None
        self._problem = ""
        """Why the machine could not be inspected, as logged."""

    async def run(self) -> None:
        while True:
            await self.report()
            await self._clock.sleep(INTERVAL)

    async def report(self) -> None:
        """Inspect the machine, and report what differs from the last report."""
        tree = self._machine.tree
        try:
            inspection, driver, obstacle = await self._machine.offload.run(
                lambda: (
                    inspect_machine(tree),
                    loaded_driver(tree),
                    diagnosing.obstacle(tree, self._module_log),
                )
            )
        except Unreadable as error:
            self._report_unreadable(str(error))
            return
        self._problem = ""
        facts = Facts(
            driver=driver,
            gate=gate_facts(inspection, self._gate_keeper.shut_reason),
            cdi=self._toolkit.cdi,
            obstacle=obstacle,
            container_runtime=self._runtime.facts,
        )
        if facts != self._facts:
            self._facts = facts
            self._reporter.report(facts)
        usage = device_usage(inspection)
        if usage != self._usage:
            self._usage = usage
            self._reporter.report(usage)

    def _report_unreadable(self, problem: str) -> None:
        """Keep the last report but for the reason of the gate: unreadable is not changed."""
        if problem != self._problem:
            _log.warning("the machine cannot be inspected", why=problem)
        self._problem = problem
        if self._facts is None or self._facts.gate is None:
            return
        gate = replace(self._facts.gate, why=self._gate_keeper.shut_reason)
        if gate != self._facts.gate:
            self._facts = replace(self._facts, gate=gate)
            self._reporter.report(self._facts)


def loaded_driver(tree: Tree) -> LoadedDriver | None:
    """Return the driver in the kernel."""
    loaded = modules.loaded(tree)
    main = loaded.get(modules.DRIVER)
    if main is None:
        return None
    modules.keep_load_time(tree)
    license_name = tree.word(f"/sys/module/{modules.DRIVER}/license") or ""
    return LoadedDriver(
        version=main.version,
        loaded_at=modules.driver_loaded_at(tree),
        modules=tuple(name for name in modules.UNLOAD_ORDER if name in loaded),
        open_kernel_modules="MIT" in license_name or "GPL" in license_name,
        preinstalled=host_driver.is_loaded(tree),
    )


def gate_facts(inspection: Inspection, shut_reason: str) -> Gate:
    admitted = inspection.answers[-1] if inspection.answers else None
    waiting = gate.waiting_request(inspection.requests, inspection.answers)
    return Gate(
        admitted_pod_uid=admitted.pod_uid if admitted else "",
        admitted_label=admitted.label if admitted else "",
        waiting_pod_uid=waiting.pod_uid if waiting else "",
        waiting_label=waiting.label if waiting else "",
        why=shut_reason,
    )


def device_usage(inspection: Inspection) -> Usage:
    """Return the pods that have the devices open, without the driver's own."""
    drivers = {answer.pod_uid for answer in inspection.answers}
    processes = Counter(holder.pod_uid for holder in inspection.holders)
    pods = sorted(uid for uid in processes if uid and uid not in drivers)
    return Usage(
        pods=tuple(PodUse(pod_uid=uid, processes=processes[uid]) for uid in pods),
        host_processes=processes[""],
    )


class DriverAgentSettings(AgentSettings, frozen=True, kw_only=True):
    change_this_machine: bool = False
    """Allow the agent to unload modules of the real kernel."""
    artefacts: str = ""
    """The folder with the ConfigMap that names the artefacts of host drivers; empty: none."""
    toolkit: bool = True
    """Keep CDI specs of the GPUs on the machine."""
    runtime_class: str = HANDLERS[0]
    """The handler of the policy's RuntimeClass."""
    containerd_runtime_class: str = ""
    """This and the following are variables of NVIDIA's toolkit, as the policy sets them."""
    nvidia_runtime_name: str = ""
    containerd_config: str = ""
    runtime_config: str = ""
    runtime_drop_in_config: str = ""
    containerd_socket: str = ""
    runtime_socket: str = ""
    runtime_restart_mode: str = ""
    no_runtime_config: bool = False
    nri: bool = False
    """Give containers the CDI devices that annotations of their pods name."""
    nri_socket: str = SOCKET
    """The socket of the container runtime, on the machine."""
    nri_gpu_namespaces: tuple[str, ...] = ()
    """The namespaces whose pods may ask for GPUs."""
    nri_management_namespaces: tuple[str, ...] = ()
    """The namespaces, beside the agent's own, whose pods may ask for management devices."""

    @property
    def runtime(self) -> RuntimeSettings:
        """Return how the container runtime is to be configured."""
        name = self.nvidia_runtime_name or self.containerd_runtime_class or self.runtime_class
        return RuntimeSettings(
            configure=self.toolkit and not self.no_runtime_config,
            main=self.runtime_config or self.containerd_config,
            drop_in=self.runtime_drop_in_config,
            handlers=tuple(dict.fromkeys((name, *HANDLERS[1:]))),
            restart=self.runtime_restart_mode,
        )


def make_runtime(settings: DriverAgentSettings, tree: Tree) -> CriRuntime:
    """Return the container runtime of this machine."""
    return CriRuntime(tree, socket=settings.runtime_socket or settings.containerd_socket)


def make_linux(settings: DriverAgentSettings, tree: Tree) -> RealLinux:
    """Return the kernel of this machine; fatal if the settings forbid to change it."""
    try:
        return RealLinux(tree, change_this_machine=settings.change_this_machine)
    except RealKernelForbidden as error:
        raise Fatal(str(error)) from error


async def run(settings: DriverAgentSettings, given: Given) -> None:
    """Start the agent for one boot of the machine."""
    host, env, service = given.host, given.env, given.service
    if host.linux is None:
        raise Fatal("the driver agent has no access to the kernel: it cannot unload a driver")
    boot = await given.boot(settings)
    artefacts = ArtefactKeeper(machine=host, config_dir=settings.artefacts, clock=env.clock)
    checks = Checks(machine=host, artefacts=artefacts)
    old = OldDriver(machine=host, linux=host.linux, clock=env.clock, root=settings.driver_root)
    handle_install = InstallHandler(
        machine=host, linux=host.linux, old_driver=old, artefacts=artefacts
    )
    handle_swap = SwapHandler(machine=host, old_driver=old, artefacts=artefacts, clock=env.clock)
    handle_mig = MigHandler(machine=host, clock=env.clock)
    runtime = RuntimeKeeper(machine=host, clock=env.clock, settings=settings.runtime)
    toolkit = Toolkit(
        machine=host,
        clock=env.clock,
        root=settings.driver_root,
        architecture=os.uname().machine,
        enabled=settings.toolkit,
        runtime_problem=lambda: runtime.cdi_problem,
    )

    async def change(handler: CommandHandler, op: Op) -> OpDone | OpFailed:
        """Withdraw the GPUs from containers; report the machine before the op's result.

        The node has no pods with GPUs now, so its container runtime may be restarted.
        """
        await runtime.look(before_restart=partial(op.checkpoint, "container-runtime"))
        async with runtime.paused(), toolkit.withdrawn():
            result = await handler(op)
        await toolkit.refresh()
        await reporter.report()
        return result

    async def keep_specs() -> None:
        await runtime.asked.wait()
        await toolkit.run()

    proof_file = ProofFile(settings.state_dir / "proven", tree=host.tree, node_uid=boot.node_uid)
    last_proven = LastProven(proof_file, host.offload)
    agent = boot.agent(
        {
            CommandKind.QUIESCE: _do_nothing,
            CommandKind.IDLE: _do_nothing,
            CommandKind.SWAP: partial(change, handle_swap),
            CommandKind.INSTALL: partial(change, handle_install),
            CommandKind.MIG: partial(change, handle_mig),
        },
        checks={CheckKind.PREFLIGHT: checks.preflight, CheckKind.HOLDERS: checks.holders},
        before_start=last_proven.before_start,
    )
    gate_keeper = GateKeeper(
        machine=host, commands=agent.commands, last_proven=last_proven, clock=env.clock
    )
    host_loader = HostLoader(
        machine=host,
        linux=host.linux,
        commands=agent.commands,
        proven=gate_keeper.proven,
        clock=env.clock,
    )
    reporter = DriverReporter(
        machine=host,
        reporter=agent.reporter,
        gate_keeper=gate_keeper,
        toolkit=toolkit,
        runtime=runtime,
        clock=env.clock,
    )
    await agent.open()
    agent.start(service)
    service.run_forever("artefacts", artefacts.run())
    service.run_forever("gate", gate_keeper.run())
    service.run_forever("installed driver", host_loader.run())
    service.run_forever("container runtime", runtime.run())
    service.run_forever("CDI specs", keep_specs())
    service.run_forever("facts", reporter.run())
    service.ready_when("gate", lambda: gate_keeper.shut_reason or None)
    if settings.nri:
        plugin = _nri_plugin(settings, toolkit, host=host, clock=env.clock)
        service.run_forever("NRI", plugin.run())
        service.ready_when("NRI", lambda: plugin.problem or None)


def _nri_plugin(
    settings: DriverAgentSettings, toolkit: Toolkit, *, host: Machine, clock: Clock
) -> NriPlugin:
    def unavailable() -> str:
        cdi = toolkit.cdi
        if cdi is None:
            return "the CDI specs of this machine are not made yet"
        return "" if cdi.devices else cdi.why

    injector = AnnotatedDevices(
        gpus=settings.nri_gpu_namespaces,
        management=filter(None, (settings.namespace, *settings.nri_management_namespaces)),
        unavailable=unavailable,
    )
    return NriPlugin(
        injector,
        tree=host.tree,
        offload=host.offload,
        clock=clock,
        socket=settings.nri_socket,
    )


async def _do_nothing(_op: Op) -> OpDone:
    """Do nothing: the agent holds no device, and the gate keeper reads the slot itself."""
    return OpDone()
