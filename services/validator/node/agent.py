"""The validator agent of a node: proves the running driver, and reports exactly what it proved.

Its evidence lets a node return to service (docs/invariants.md#i3). On the machine it writes only
the files that tell other pods what is proven (`status_files`). Between two validations it keeps
only the names of the GPUs that the driver listed.
"""

import asyncio
from typing import Final

from libs.bus.agent import AgentSettings
from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.contracts.commands import Command, CommandKind, Order, Validate
from libs.contracts.events import EvidenceEvent
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.reports import Evidence
from libs.host.cuda.processes import CudaProcesses
from libs.host.podresources.client import SOCKET, PodResources
from libs.host.tree import Tree
from libs.policy.kinds.mig import MigStrategy
from libs.runtime.http import HttpSettings, serve_pages
from libs.runtime.logs import logger
from libs.runtime.service import Service
from services.agent_frame import Boot, Given
from services.validator.node.node_status import NodeStatus
from services.validator.node.obstacle_watch import ObstacleWatch
from services.validator.node.probe import STEPS
from services.validator.node.recovery import Recovery
from services.validator.node.validation import Run, Validator

_log = logger()


class ValidatorSettings(AgentSettings, frozen=True, kw_only=True):
    toolkit: bool = False
    """Whether the node's driver agent keeps CDI specs, which are to be proven."""
    cuda_library: str = ""
    """The driver's library libcuda, or its folder; if empty, it is searched for."""
    export_node_status: bool = False
    """Whether the metrics of the node's state are served."""
    node_status: HttpSettings = HttpSettings(port=8000)
    """Address of their page."""
    mig_strategy: MigStrategy = MigStrategy.MIXED
    """How the device plugin offers divided GPUs."""
    pod_resources: str = SOCKET
    """The kubelet's socket of the pod-resources API, which tells what pods can have."""


MODULES_INTERVAL: Final = 5.0
"""Seconds between two looks at the modules of which files tell: as often as pods look for these."""


class ValidatorAgent:
    """Carries out the commands, and publishes each evidence once the journal has its result."""

    def __init__(
        self,
        validator: Validator,
        boot: Boot,
    ) -> None:
        given, machine = boot.given, boot.given.host
        self._validator = validator
        self._clock = given.env.clock
        self._unpublished: dict[Order, Evidence] = {}
        self._alone = asyncio.Lock()
        self._agent = boot.agent(
            {
                CommandKind.QUIESCE: self._quiesce,
                CommandKind.IDLE: _do_nothing,
                CommandKind.VALIDATE: self._validate,
            }
        )
        self._agent.commands.on_entry(self._publish_evidence)
        self._recovery = Recovery(
            machine=machine,
            prove=self._prove,
            try_plugin=validator.try_plugin,
            commands=self._agent.commands,
            names=lambda request: Command.of(
                request,
                node=given.bus.identity.node,
                node_uid=boot.node_uid,
                boot_id=boot.boot_id,
                epoch=0,
                order=Order(0, 0),
                deadline=0.0,
            ),
            clock=self._clock,
            report=self._agent.reporter.report,
            alone=self._alone,
        )
        self._obstacles = ObstacleWatch(
            machine=machine,
            reporter=self._agent.reporter,
            node_uid=boot.node_uid,
            boot_id=boot.boot_id,
            clock=self._clock,
        )

    async def start(self, service: Service) -> None:
        await self._agent.open()
        self._agent.start(service)
        service.run_forever("recovery", self._recovery.run())
        service.run_forever("obstacles", self._obstacles.run())
        service.run_forever("modules", self._follow_modules())

    async def _follow_modules(self) -> None:
        """Tell other pods of modules that are loaded, or gone, after a validation."""
        while True:
            async with self._alone:
                await self._validator.follow_modules()
            await self._clock.sleep(MODULES_INTERVAL)

    async def _quiesce(self, _op: Op) -> OpDone:
        async with self._alone:
            await self._validator.clear_status_files()
        return OpDone()

    async def _prove(self, run: Run, request: Validate) -> Evidence:
        with self._obstacles.pauses.hold():
            evidence = await self._validator.validate(run, request)
            self._obstacles.validated(evidence)
        return evidence

    async def _validate(self, op: Op) -> OpDone | OpFailed:
        request = op.body
        if not isinstance(request, Validate):
            return OpFailed("defect", f"{op.command.kind} is no validation")
        unknown = [step for step in request.steps if step not in STEPS]
        if unknown:
            return OpFailed("unknown-step", f"this validator cannot do {', '.join(unknown)}")
        async with self._alone:
            evidence = await self._prove(op, request)
        self._unpublished[op.command.order] = evidence
        self._agent.reporter.report(evidence)
        if evidence.passed:
            return OpDone(f"driver {evidence.driver_version} works")
        failed = evidence.steps[-1]
        return OpFailed(failed.name, failed.message)

    def _publish_evidence(self, entry: Entry) -> None:
        if entry.phase is not EntryPhase.FINISHED:
            return
        if (evidence := self._unpublished.pop(entry.order, None)) is not None:
            self._agent.publish_event(
                _event(evidence),
                id=f"evidence/{entry.order}/{entry.time:.6f}",
                message=_describe(evidence),
            )


def _event(evidence: Evidence) -> EvidenceEvent:
    return EvidenceEvent(
        token=evidence.token,
        op=evidence.op,
        label=evidence.label,
        passed=evidence.passed,
        failed_step="" if evidence.passed else evidence.steps[-1].name,
    )


def _describe(evidence: Evidence) -> str:
    if evidence.passed:
        return f"driver {evidence.driver_version} passed validation"
    return f"the driver failed validation: {evidence.steps[-1].message}"


def make_cuda(settings: ValidatorSettings, tree: Tree) -> CudaProcesses:
    return CudaProcesses(tree, library=settings.cuda_library, driver_root=settings.driver_root)


async def run(settings: ValidatorSettings, given: Given) -> None:
    """Start the agent for one boot of the machine, without a page."""
    await _start(settings, given)


async def _start(settings: ValidatorSettings, given: Given) -> NodeStatus:
    """Start the agent for one boot of the machine; return the metrics of the node's state."""
    host, env, service = given.host, given.env, given.service
    if host.cuda is None:
        raise RuntimeError("the validator was started on a machine without CUDA")
    boot = await given.boot(settings)
    validator = Validator(
        machine=host,
        cuda=host.cuda,
        kubelet=host.devices or PodResources(settings.pod_resources),
        node_uid=boot.node_uid,
        boot_id=boot.boot_id,
        clock=env.clock,
        driver_root=settings.driver_root,
        with_toolkit=settings.toolkit,
        mig_strategy=settings.mig_strategy,
    )
    await ValidatorAgent(validator, boot).start(service)
    status = NodeStatus(
        machine=host,
        node=settings.node,
        clock=env.clock,
        kubelet=host.devices or PodResources(settings.pod_resources),
    )
    if settings.export_node_status:
        service.run_forever("node status", status.run())
    return status


async def run_and_export(settings: ValidatorSettings, given: Given) -> None:
    """Start the agent, and serve the metrics of the node's state if they are wanted."""
    status = await _start(settings, given)
    if settings.export_node_status:
        pages = {"/metrics": status.page}
        await serve_pages(given.service, "node status page", settings.node_status, pages)


async def _do_nothing(_op: Op) -> OpDone:
    """Do nothing: the agent holds no device between two validations."""
    return OpDone()
