"""How the GPUs of a node at rest are divided, and the operation that divides them otherwise.

docs/states.md#mig
"""

from libs.contracts.commands import CommandKind
from libs.contracts.identities import Writer
from libs.contracts.node import MigState, NodeRecord, Operation
from libs.contracts.waits import AGENT_LATE, WaitCode
from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait
from libs.rollout.node_case import NodeCase
from libs.rollout.node_writes import NodeChange, write_step
from libs.rollout.preflight_check import unevictable_wait
from libs.rollout.views.machine import WantedMig
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.wait_reasons import agent_wait, wait

_OF_LABEL = "an administrator, by another value of the label nvidia.com/mig.config"


def is_divided(node: NodeView, record: NodeRecord | None) -> bool:
    """Whether the GPUs are known to be divided as wanted, or nothing can be wanted."""
    wanted = node.mig
    if wanted is None or wanted.error or wanted.applied:
        return True
    evidence = None if record is None else record.evidence
    return (
        evidence is not None
        and evidence.passed
        and evidence.boot_id == node.boot_id
        and evidence.mig_digest == wanted.digest != ""
    )


def is_refused(node: NodeView, record: NodeRecord) -> bool:
    """Whether this geometry could not be applied in this boot: a person has to decide."""
    wanted = node.mig
    return (
        wanted is not None
        and bool(record.mig_failed)
        and record.mig_digest == wanted.digest
        and record.boot_id == node.boot_id
    )


def divide_at_rest(case: NodeCase, record: NodeRecord, *, proven: bool) -> NodeOutcome:
    """Return what the division of the GPUs needs; None: nothing.

    `proven`: the evidence covers the driver that runs; otherwise facts alone show the division.
    """
    wanted = case.node.mig
    if wanted is None:
        return _set_state(case, record, None)
    if wanted.error:
        return _set_state(case, record, MigState.FAILED) or wait(
            WaitCode.MIG, wanted.error, case.now, who=_OF_LABEL
        )
    if wanted.applied or (proven and is_divided(case.node, record)):
        return _set_state(case, record, MigState.SUCCESS)
    if is_refused(case.node, record):
        detail = f"the GPUs could not be divided as {wanted.config}: {record.mig_failed}"
        return _set_state(case, record, MigState.FAILED) or wait(
            WaitCode.MIG, detail, case.now, who=_OF_LABEL
        )
    pending = _set_state(case, record, MigState.PENDING)
    if pending is not None:
        return pending
    if wanted.applied is None:
        detail = "the discovery agent has not reported how the GPUs are divided since the last boot"
        return wait(WaitCode.AGENT_SILENT, detail, case.now, who=AGENT_LATE)
    return _obstacle(case, record) or Candidate(
        operation=Operation.MIG, target="", label=case.node.driver_label
    )


def mig_state_at_rest(node: NodeView, record: NodeRecord) -> str:
    """Return the label of a node that is released with this record."""
    wanted = node.mig
    if wanted is None:
        return ""
    if wanted.error or is_refused(node, record):
        return MigState.FAILED
    return MigState.SUCCESS if is_divided(node, record) else MigState.PENDING


def describe_mig_state(wanted: WantedMig | None, record: NodeRecord | None, state: str) -> str:
    """Return what the label means, with the cause of a failure, for people."""
    if wanted is None or not state:
        return "no MIG configuration is wanted any more"
    more = ""
    if state == MigState.PENDING:
        more = wanted.remark
    elif state == MigState.FAILED:
        more = wanted.error or ("" if record is None else record.mig_failed or record.cause)
    return f"MIG configuration {wanted.config}: {state}{more and f'; {more}'}"


def _set_state(case: NodeCase, record: NodeRecord, state: MigState | None) -> Step | None:
    """Write the label, if it is another; None: it is right."""
    is_ours = case.node.is_owned(NodeField.MIG_STATE)
    if (not is_ours) if state is None else case.node.mig_state == state:
        return None
    return write_step(
        case,
        NodeChange(
            because=describe_mig_state(case.node.mig, record, state or ""),
            record=record,
            mig_state=state or "",
        ),
    )


def _obstacle(case: NodeCase, record: NodeRecord) -> Wait | None:
    if case.now.at < record.back_off_until:
        reason = f"released, to be divided later: {record.cause or 'that took too long'}"
        return wait(WaitCode.BACK_OFF, reason, case.now, record.back_off_until)
    if not case.node.ready:
        return wait(WaitCode.NOT_READY, "the Node is not Ready", case.now)
    return agent_wait(case.node, _REQUIRED, case.now) or unevictable_wait(case)


_REQUIRED = (
    (Writer.DRIVER.value, (CommandKind.MIG.value,)),
    (Writer.VALIDATOR.value, (CommandKind.VALIDATE.value,)),
)
