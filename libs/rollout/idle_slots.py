"""The slots of a node at rest: `idle`, with what is proven (docs/states.md#gate-3).

With it a lost journal, a reboot and a deleted driver pod recover by themselves.
"""

from functools import lru_cache

import msgspec

from libs.contracts.commands import (
    CommandKind,
    Idle,
    Proven,
)
from libs.contracts.identities import Writer
from libs.contracts.message import raw
from libs.contracts.node import NodeRecord
from libs.contracts.reports import Evidence
from libs.rollout.decision import Step, WriteSlot
from libs.rollout.node_case import NodeCase
from libs.rollout.node_driver import passed_evidence
from libs.rollout.slots import DRIVER, PLUGIN, VALIDATOR, idle_body, idle_command, proven_by
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Component
from libs.rollout.views.node import NodeView

_IDLE = CommandKind.IDLE

_PROOF_HOLDERS = frozenset({str(Writer.DRIVER), str(Writer.VALIDATOR)})
"""Components that get an `idle` with the proven driver."""


_EMPTY_IDLE = raw(Idle())


@lru_cache(maxsize=1024)
def _proven_body(proven: Proven) -> msgspec.Raw:
    return raw(Idle(proven=proven))


@lru_cache(maxsize=1024)
def _plugin_body(config: str) -> msgspec.Raw:
    return raw(Idle(config=config))


def slots_are_idle(node: NodeView, evidence: Evidence | None) -> bool:
    """Whether every slot of a node with a record has the right content."""
    proven = _EMPTY_IDLE if evidence is None else _proven_body(proven_by(evidence))
    wanted_bodies = {DRIVER: proven, VALIDATOR: proven, PLUGIN: _plugin_body(node.plugin_config)}
    uid = node.uid
    for name, component in node.components.items():
        slot = component.slot
        wanted = wanted_bodies.get(name, _EMPTY_IDLE)
        if (
            slot is None
            or slot.kind is not _IDLE
            or slot.body != wanted
            or slot.node_uid != uid
            or (slot.token, slot.op) < component.highest_order
        ):
            return False
    return True


def idle_step(case: NodeCase) -> Step | None:
    """Correct the slots of a node at rest; None: they are right.

    Without a record the state of the node is unknown: only commands other than `idle` are ended.
    """
    if case.now.visibility.bus_down_since is not None:
        return None
    evidence = passed_evidence(case.node, case.record)
    if case.record is not None and slots_are_idle(case.node, evidence):
        return None
    proven = None if evidence is None else proven_by(evidence)
    actions = tuple(
        idle_command(
            case.node,
            name,
            case.now,
            token=_last_token(case.record, component),
            proven=proven if name in _PROOF_HOLDERS else None,
        )
        for name, component in case.node.components.items()
        if _needs_idle(name, component, case.node, case.record, proven)
    )
    if not actions:
        return None
    names = ", ".join(action.component for action in actions)
    return Step(actions=actions, because=f"no upgrade in progress: send idle to {names}")


def withdraw_commands(node: NodeView, now: Instant) -> tuple[WriteSlot, ...]:
    """Return `idle` for every other command of a node with a lost record.

    Return nothing while a component carries out its command: an interruption halfway, and other
    users of the devices, would do more harm.
    """
    commanded = {
        name: component
        for name, component in node.components.items()
        if _has_command(component, node)
    }
    if now.visibility.bus_down_since is not None or any(map(_is_executing, commanded.values())):
        return ()
    return tuple(
        idle_command(node, name, now, token=_last_token(None, component), proven=None)
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
    # Decoded, so that its encoding does not matter.
    body = msgspec.json.decode(slot.body, type=Idle)
    return body != idle_body(node, name, proven if name in _PROOF_HOLDERS else None)


def _last_token(record: NodeRecord | None, component: Component) -> int:
    """Return the last token of the lease, or a higher one that the component has seen."""
    slot = component.slot
    return max(
        0 if record is None else record.token,
        0 if slot is None else slot.token,
        component.highest_order.token,
    )
