"""What is to be done about one operand: applied, replaced, taken away, refused, or nothing.

- What we made is kept as it is rendered, whoever edits it.
- What the GPU Operator made under a name of ours is replaced, not taken over: an apply would leave
  its init containers and its owner in place. It goes as an orphan, so that its pods stay; ours,
  which selects the same pods, adopts them and replaces them one at a time.
- What anybody else made under such a name is left alone, and said.
- What is switched off goes, if a policy of the whole cluster says so: never because one is gone.

Pure. Whether it may be done now, with an operator at work or on old news, is not decided here.
"""

import msgspec

from libs.kube.views import Object
from libs.policy.render.agents import AGENTS
from libs.policy.render.rendered import RenderedObject
from libs.policy.validation import OWNER_LABEL
from services.driver.cluster.diff import difference
from services.driver.cluster.resources import (
    CONFIGS,
    DAEMON_SETS,
    RUNTIME_CLASSES,
    RuntimeClass,
    is_of_gpu_operator,
    is_ours,
)

_OF_AGENTS = frozenset(agent.app for agent in AGENTS)


class ApplyOperand(msgspec.Struct, frozen=True):
    """It is to be as it is rendered."""

    made: RenderedObject
    because: str


class DeleteOperand(msgspec.Struct, frozen=True, kw_only=True):
    """It is to go, if it is still this very one."""

    uid: str
    revision: str
    orphan: bool
    """Its pods stay."""
    because: str


class RefuseOperand(msgspec.Struct, frozen=True):
    """It cannot be as it is rendered, until a person does something."""

    why: str


OperandAction = ApplyOperand | DeleteOperand | RefuseOperand


def decide_operand(wanted: RenderedObject, there: Object | None) -> OperandAction | None:
    """What makes it as it is wanted."""
    if there is None:
        return ApplyOperand(wanted, "it is not there")
    if there.metadata.deletion_timestamp:
        return None  # it is made anew when it is gone
    if wanted.kind == RUNTIME_CLASSES.kind and not is_ours(there):
        return _borrowed(wanted, there)
    if wanted.kind == DAEMON_SETS.kind and is_of_gpu_operator(there):
        return delete_operand(there, orphan=True, because="the GPU Operator made it")
    if wanted.kind == CONFIGS.kind or is_ours(there):
        path = difference(wanted.object, there)
        return ApplyOperand(wanted, f"{path} is not as it should be") if path else None
    return RefuseOperand(
        f"there is a {wanted.kind} {wanted.name} that somebody else made: delete it, or rename it"
    )


def decide_unwanted(there: Object, *, kind: str, decided: bool) -> OperandAction | None:
    """What becomes of what nobody wants; drivers apart. `decided`: a policy says so."""
    if not decided or there.metadata.deletion_timestamp or not is_ours(there):
        return None
    agent = kind == DAEMON_SETS.kind and there.metadata.name in _OF_AGENTS
    if agent or kind == RUNTIME_CLASSES.kind:
        return delete_operand(there, orphan=False, because="its policy does not want it")
    return None


def delete_operand(there: Object, *, orphan: bool, because: str) -> DeleteOperand:
    """This very object, in this very state."""
    metadata = there.metadata
    return DeleteOperand(
        uid=metadata.uid,
        revision=metadata.resource_version,
        orphan=orphan,
        because=because,
    )


def owner_change(labels: dict[str, str], owner: str | None) -> dict[str, str | None] | None:
    """The change of a node's labels that makes this its owner; None where it is."""
    return None if labels.get(OWNER_LABEL) == owner else {OWNER_LABEL: owner}


def _borrowed(wanted: RenderedObject, there: Object) -> RefuseOperand | None:
    """A RuntimeClass of somebody else serves as well, if it means the same."""
    handler = wanted.object["handler"]
    if not isinstance(there, RuntimeClass) or there.handler == handler:
        return None
    return RefuseOperand(
        f"there is a RuntimeClass {wanted.name} that somebody else made, with the handler"
        f' "{there.handler}" instead of "{handler}": delete it, or name another one in'
        " spec.operator.runtimeClass"
    )
