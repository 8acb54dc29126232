"""The validator agent of a node: it proves the driver that runs, and says exactly what it proved.

Its word lets a node return to service (docs/invariants.md#i3). It changes nothing on the machine
and holds nothing between two validations.
"""

from typing import Final

from libs.bus.agent import Agent
from libs.bus.agent_settings import AgentSettings
from libs.bus.commands.op import Op, OpDone, OpFailed
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.contracts.commands import CommandKind, Order, Validate
from libs.contracts.events import EvidenceEvent
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.reports import Evidence, ValidationStep
from libs.host import driver_files, system
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.validator.node import driver_check

NO_DIGEST: Final = "none"
"""Instead of a digest, where there is nothing of the kind to be validated."""

STEP: Final = "driver"
TRIES: Final = 6
RETRY_INTERVAL: Final = 5.0
"""Seconds between two tries: GPUs come up one after another."""


class ValidatorSettings(AgentSettings, frozen=True, kw_only=True):
    """Settings of the validator agent; the names are those that its pod is rendered with."""

    driver_dir: str = driver_files.ROOT
    """Where the machine sees the driver container's root."""
    check_toolkit: bool = True
    """Whether the container runtime is to be proven too."""
    check_plugin: bool = True
    """Whether GPUs must be offered to the kubelet."""
    check_variables: str = "{}"
    """By step, the variables that people name for it, as JSON."""


class ValidateHandler:
    """Carries `validate` out on one machine, in one boot."""

    def __init__(self, *, machine: Machine, node_uid: str, boot_id: str, clock: Clock) -> None:
        self._machine = machine
        self._node_uid = node_uid
        self._boot_id = boot_id
        self._clock = clock

    async def evidence(self, op: Op, asked: Validate) -> Evidence:
        """What was proven, or what was not."""
        began = self._clock.monotonic()
        found = await self._found(op, asked)
        kernel = await self._machine.offload.do(lambda: system.kernel(self._machine.tree))
        step = ValidationStep(
            name=STEP,
            passed=not found.trouble,
            message=found.trouble,
            seconds=round(self._clock.monotonic() - began, 3),
        )
        return Evidence(
            epoch=op.command.epoch,
            token=op.command.token,
            op=op.command.op,
            passed=step.passed,
            label=asked.label,
            node_uid=self._node_uid,
            boot_id=self._boot_id,
            kernel=kernel.release if kernel else "",
            driver_pod_uid=asked.pod_uid,
            driver_started=found.started,
            driver_version=found.version,
            driver_digest=found.digest or NO_DIGEST,
            runtime_digest=NO_DIGEST,
            mig_digest=NO_DIGEST,
            steps=(step,),
            at=self._clock.now(),
        )

    async def _found(self, op: Op, asked: Validate) -> driver_check.DriverProbe:
        trial = 1
        while True:
            op.raise_if_superseded()
            found = await self._machine.offload.do(
                lambda: driver_check.probe_driver(self._machine.tree, self._machine.gpus, asked)
            )
            op.progress(STEP, found.trouble)
            if not found.trouble or trial == TRIES:
                return found
            trial += 1
            await self._clock.sleep(RETRY_INTERVAL)


async def run(
    settings: ValidatorSettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    env: Env,
    service: Service,
) -> None:
    """Live as long as the service: one boot of the machine."""
    boot_id = await host.offload.do(lambda: system.require_boot_id(host.tree))
    node_uid = settings.resolve_node_uid()
    validation = ValidateHandler(machine=host, node_uid=node_uid, boot_id=boot_id, clock=env.clock)

    async def validate(op: Op) -> OpDone | OpFailed:
        asked = op.body
        if not isinstance(asked, Validate):
            return OpFailed("defect", f"{op.command.kind} is no validation")
        unknown = [step for step in asked.steps if step != STEP]
        if unknown:
            return OpFailed("unknown-step", f"this validator cannot do {', '.join(unknown)}")
        evidence = proofs[op.command.order] = await validation.evidence(op, asked)
        agent.reporter.report(evidence)
        if evidence.passed:
            return OpDone(f"driver {evidence.driver_version} works")
        return OpFailed(STEP, evidence.steps[0].message)

    agent = Agent(
        bus=bus,
        env=env,
        journal=journal,
        node_uid=node_uid,
        boot_id=boot_id,
        handlers={
            CommandKind.QUIESCE: _at_rest,
            CommandKind.IDLE: _at_rest,
            CommandKind.VALIDATE: validate,
        },
        checks={},
    )
    proofs: dict[Order, Evidence] = {}

    def kept(entry: Entry) -> None:
        if entry.phase is EntryPhase.FINISHED and (found := proofs.pop(entry.order, None)):
            once, message = f"evidence/{entry.order}/{entry.time:.6f}", _words(found)
            agent.publish_event(_told(found), id=once, message=message)

    agent.commands.on_entry(kept)
    await agent.open()
    agent.start(service)


def _told(evidence: Evidence) -> EvidenceEvent:
    return EvidenceEvent(
        token=evidence.token,
        op=evidence.op,
        label=evidence.label,
        passed=evidence.passed,
        failed_step="" if evidence.passed else STEP,
    )


def _words(evidence: Evidence) -> str:
    if evidence.passed:
        return f"driver {evidence.driver_version} is proven"
    return f"the driver is not proven: {evidence.steps[0].message}"


async def _at_rest(_op: Op) -> OpDone:
    """It holds no device between two validations."""
    return OpDone()
