"""The slots of nodes at rest: `idle`, with what is proven (docs/states.md#gate-3).

A node without a lease has this in its slots under every leader, so that a lost journal, a reboot
and a deleted driver pod recover by themselves.
"""

from functools import lru_cache

import msgspec

from libs.contracts.commands import Command, CommandKind, Idle, Proven
from libs.contracts.identities import Writer
from libs.contracts.message import raw
from libs.contracts.node import NodeRecord
from libs.contracts.reports import Evidence
from libs.rollout.at_rest.running_driver import passed_evidence
from libs.rollout.decision import Step, WriteSlot
from libs.rollout.slots import idle_command
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Component
from libs.rollout.views.node import NodeView

_IDLE = CommandKind.IDLE
_PROOF_HOLDERS = frozenset({str(Writer.DRIVER), str(Writer.VALIDATOR)})
"""Components that need to know what is proven."""
_NOTHING = raw(Idle())


@lru_cache(maxsize=1024)
def _proven_body(label: str, kernel: str) -> msgspec.Raw:
    return raw(Idle(proven=Proven(label=label, kernel=kernel)))


def slots_are_idle(node: NodeView, evidence: Evidence | None) -> bool:
    """Whether every slot of a node with a record has the right content."""
    proven = _NOTHING if evidence is None else _proven_body(evidence.label, evidence.kernel)
    uid = node.uid
    for name, component in node.components.items():
        slot = component.slot
        if (
            slot is None
            or slot.kind is not _IDLE
            or slot.body != (proven if name in _PROOF_HOLDERS else _NOTHING)
            or slot.node_uid != uid
            or (slot.token, slot.op) < component.highest_order
        ):
            return False
    return True


def idle_step(node: NodeView, record: NodeRecord | None, now: Instant) -> Step | None:
    """Correct the slots of a node at rest; None: they are right.

    Without a record nothing is known of the node: then only commands other than `idle` are ended.
    """
    if now.visibility.bus_down_since is not None:
        return None
    evidence = passed_evidence(node, record)
    if record is not None and slots_are_idle(node, evidence):
        return None
    proven = None if evidence is None else Proven(label=evidence.label, kernel=evidence.kernel)
    actions = tuple(
        idle_command(
            node,
            name,
            now,
            token=_token(record, component),
            proven=proven if name in _PROOF_HOLDERS else None,
        )
        for name, component in node.components.items()
        if _needs_idle(name, component, node, record, proven)
    )
    if not actions:
        return None
    names = ", ".join(action.component for action in actions)
    return Step(actions=actions, because=f"no upgrade in progress: send idle to {names}")


def withdraw_commands(node: NodeView, now: Instant) -> tuple[WriteSlot, ...]:
    """Return `idle` for every other command of a node whose record is lost.

    Not while a component is carrying its command out: stopping halfway would be worse, and so would
    be to let others take up the devices.
    """
    commanded = {
        name: component
        for name, component in node.components.items()
        if _has_command(component, node)
    }
    if now.visibility.bus_down_since is not None or any(map(_is_executing, commanded.values())):
        return ()
    return tuple(
        idle_command(node, name, now, token=_token(None, component), proven=None)
        for name, component in commanded.items()
    )


def _has_command(component: Component, node: NodeView) -> bool:
    slot = component.slot
    return slot is not None and slot.node_uid == node.uid and slot.kind is not _IDLE


def _is_executing(component: Component) -> bool:
    slot, progress = component.slot, component.progress
    if slot is None or progress is None or progress.order != slot.order:
        return False
    return component.result_of(slot.order) is None


def _needs_idle(
    name: str,
    component: Component,
    node: NodeView,
    record: NodeRecord | None,
    proven: Proven | None,
) -> bool:
    slot = component.slot
    if slot is None or slot.node_uid != node.uid:
        return record is not None
    if slot.kind is not _IDLE:
        return True
    if record is None:
        return False
    if slot.order < component.highest_order:
        return True
    return _proven_in(slot) != (proven if name in _PROOF_HOLDERS else None)


def _proven_in(slot: Command) -> Proven | None:
    """Decode the `idle`, so that its encoding does not matter."""
    return msgspec.json.decode(slot.body, type=Idle).proven


def _token(record: NodeRecord | None, component: Component) -> int:
    """Return the last token of the lease, or a higher one that the component has seen."""
    slot = component.slot
    return max(
        0 if record is None else record.token,
        0 if slot is None else slot.token,
        component.highest_order.token,
    )
