"""Decides what to do about one operand: apply, delete, refuse, or nothing. Pure.

- What we applied is kept as rendered, even if others edit it.
- What the GPU Operator created under a name of ours is replaced, not taken over: an apply would
  keep its init containers and its owner. It is deleted as an orphan, so that its pods stay; ours
  selects the same pods, adopts them and replaces them one at a time.
- What others created under such a name is left alone, and refused.
- What is switched off is deleted only if a policy of the whole cluster says so, never because a
  policy is missing.

Whether the action is permitted now (an active GPU Operator, stale caches) is decided elsewhere.
"""

import msgspec

from libs.kube.views import Object
from libs.policy.render.agents import AGENTS
from libs.policy.render.rendered import RenderedObject
from services.driver.cluster.diff import difference
from services.driver.cluster.resources import (
    CONFIGS,
    DAEMON_SETS,
    RUNTIME_CLASSES,
    RuntimeClass,
    is_of_gpu_operator,
    is_ours,
)

_AGENT_NAMES = frozenset(agent.app for agent in AGENTS)


class ApplyOperand(msgspec.Struct, frozen=True):
    rendered: RenderedObject
    because: str


class DeleteOperand(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    revision: str
    orphan: bool
    """Keep its pods."""
    because: str


class RefuseOperand(msgspec.Struct, frozen=True):
    """The operand cannot be applied until a person acts."""

    why: str


OperandAction = ApplyOperand | DeleteOperand | RefuseOperand


def decide_operand(wanted: RenderedObject, live: Object | None) -> OperandAction | None:
    if live is None:
        return ApplyOperand(wanted, "it does not exist")
    if live.metadata.deletion_timestamp:
        return None  # applied again when it is gone
    if wanted.kind == RUNTIME_CLASSES.kind and not is_ours(live):
        # A RuntimeClass of others serves as well if it has the same handler.
        handler = wanted.object["handler"]
        if not isinstance(live, RuntimeClass) or live.handler == handler:
            return None
        return RefuseOperand(
            f"RuntimeClass {wanted.name} was not created by Sluice and has the handler"
            f' "{live.handler}" instead of "{handler}": delete it, or set another name in'
            " spec.operator.runtimeClass"
        )
    if wanted.kind == DAEMON_SETS.kind and is_of_gpu_operator(live):
        return delete_operand(live, orphan=True, because="the GPU Operator created it")
    if wanted.kind == CONFIGS.kind or is_ours(live):
        path = difference(wanted.object, live)
        return ApplyOperand(wanted, f"{path} differs") if path else None
    return RefuseOperand(
        f"{wanted.kind} {wanted.name} exists and was not created by Sluice: delete it or rename it"
    )


def decide_unwanted(live: Object, *, kind: str, decided: bool) -> OperandAction | None:
    """Decide about an object that is not rendered, and is no driver's.

    `decided`: a policy says which operands the cluster should have.
    """
    if not decided or live.metadata.deletion_timestamp or not is_ours(live):
        return None
    agent = kind == DAEMON_SETS.kind and live.metadata.name in _AGENT_NAMES
    if agent or kind == RUNTIME_CLASSES.kind:
        return delete_operand(live, orphan=False, because="its policy does not want it")
    return None


def delete_operand(live: Object, *, orphan: bool, because: str) -> DeleteOperand:
    """Delete this object in this revision."""
    metadata = live.metadata
    return DeleteOperand(
        uid=metadata.uid, revision=metadata.resource_version, orphan=orphan, because=because
    )
