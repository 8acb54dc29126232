"""The validator agent of a node: proves the running driver, and reports exactly what it proved.

Its evidence lets a node return to service (docs/invariants.md#i3). It changes nothing on the
machine and holds nothing between two validations.
"""

from typing import Final

from libs.bus.agent import Agent, AgentSettings
from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.contracts.commands import CommandKind, Order, Validate
from libs.contracts.events import EvidenceEvent
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.reports import Evidence, ValidationStep
from libs.host import system
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.validator.node import driver_check

NO_DIGEST: Final = "none"
"""The digest of a part that was not validated."""

STEP: Final = "driver"
TRIES: Final = 6
RETRY_INTERVAL: Final = 5.0
"""Seconds between two tries: GPUs come up one after another."""


class ValidatorSettings(AgentSettings, frozen=True, kw_only=True):
    """The validator has no settings of its own."""


async def validate_driver(
    op: Op, request: Validate, *, machine: Machine, node_uid: str, boot_id: str, clock: Clock
) -> Evidence:
    """Check the driver until it works or all tries failed.

    While the machine does not show the requested run, no try is used up: either it soon will, or
    the scheduler replaces the request, or the time for validation ends.
    """
    started = clock.monotonic()
    attempt = 1
    while True:
        op.raise_if_superseded()
        probe = await machine.offload.run(
            lambda: driver_check.probe_driver(machine.tree, machine.gpus, request)
        )
        op.progress(STEP, probe.problem)
        if not probe.is_undecided:
            if not probe.problem or attempt == TRIES:
                break
            attempt += 1
        await clock.sleep(RETRY_INTERVAL)
    step = ValidationStep(
        name=STEP,
        passed=not probe.problem,
        message=probe.problem,
        seconds=round(clock.monotonic() - started, 3),
    )
    return Evidence(
        epoch=op.command.epoch,
        token=op.command.token,
        op=op.command.op,
        passed=step.passed,
        label=request.label,
        node_uid=node_uid,
        boot_id=boot_id,
        kernel=probe.kernel,
        driver_pod_uid=request.pod_uid,
        driver_started=probe.started,
        driver_version=probe.version,
        driver_digest=probe.digest or NO_DIGEST,
        runtime_digest=NO_DIGEST,
        mig_digest=probe.mig_digest or NO_DIGEST,
        steps=(step,),
        at=clock.now(),
    )


async def run(
    settings: ValidatorSettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    env: Env,
    service: Service,
) -> None:
    """Start the agent for one boot of the machine."""
    boot_id = await host.offload.run(lambda: system.require_boot_id(host.tree))
    node_uid = settings.resolve_node_uid()

    async def validate(op: Op) -> OpDone | OpFailed:
        request = op.body
        if not isinstance(request, Validate):
            return OpFailed("defect", f"{op.command.kind} is no validation")
        unknown = [step for step in request.steps if step != STEP]
        if unknown:
            return OpFailed("unknown-step", f"this validator cannot do {', '.join(unknown)}")
        evidence = unpublished[op.command.order] = await validate_driver(
            op, request, machine=host, node_uid=node_uid, boot_id=boot_id, clock=env.clock
        )
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
            CommandKind.QUIESCE: _do_nothing,
            CommandKind.IDLE: _do_nothing,
            CommandKind.VALIDATE: validate,
        },
        checks={},
    )
    unpublished: dict[Order, Evidence] = {}

    def publish_evidence(entry: Entry) -> None:
        """Publish the event when the journal has the result."""
        if entry.phase is EntryPhase.FINISHED and (found := unpublished.pop(entry.order, None)):
            agent.publish_event(
                EvidenceEvent(
                    token=found.token,
                    op=found.op,
                    label=found.label,
                    passed=found.passed,
                    failed_step="" if found.passed else STEP,
                ),
                id=f"evidence/{entry.order}/{entry.time:.6f}",
                message=f"driver {found.driver_version} is proven"
                if found.passed
                else f"the driver is not proven: {found.steps[0].message}",
            )

    agent.commands.on_entry(publish_evidence)
    await agent.open()
    agent.start(service)


async def _do_nothing(_op: Op) -> OpDone:
    """Do nothing: the agent holds no device between two validations."""
    return OpDone()
