"""A pool of a few nodes at one moment: what is written, and which writes are pending.

A machine does only what the engine needs: after a start, its driver comes up or fails. Decisions
are made by the engine; each write takes effect on its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from libs.contracts.commands import Order
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import MANAGER, NodeRecord, UpgradeState
from libs.contracts.rollout import RolloutStatus
from libs.rollout.decision import Step, WriteNode, WriteRollout, WriteSlot
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import PreflightQuery
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView, RolloutView
from libs.testing.not_none import not_none
from tests.component.rollout.exploration.harm.oracle import HarmOracle
from tests.unit.rollout.builders import (
    NOW,
    apply_step,
    done,
    ended,
    instant,
    label_of,
    node,
    pool,
    required,
    version_of,
)

TARGETS = ("A", "B", "C")
"""The targets of the pool; nodes run the first at the start."""


class PendingWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a node that has not taken effect."""

    step: Step
    halted: frozenset[str]
    """Targets that were halted at the decision."""


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    nodes: Mapping[str, NodeView]
    pool: PoolView
    oracle: HarmOracle
    writes: Mapping[str, PendingWrite] = {}
    """Pending writes by node name."""
    rollout_write: WriteRollout | None = None
    """The pending write of the Rollout."""
    halted: frozenset[str] = frozenset()
    """Targets that were halted at the decision on `rollout_write`."""
    decisions: int = 0
    next_targets: tuple[str, ...] = ()
    """Targets that the policy will want, one after another."""
    events: tuple[str, ...] = ()
    """Events that may still happen, once each."""

    @property
    def now(self) -> Instant:
        """The present instant, later at each decision: the engine orders proofs by time."""
        return instant(NOW + self.decisions / 1000)

    @property
    def view(self) -> RolloutView:
        return not_none(self.pool.rollout)

    @property
    def status(self) -> RolloutStatus:
        return self.view.status

    def with_node(self, node: NodeView, **changes: Any) -> "ModelState":
        return replace(self, nodes={**self.nodes, node.name: node}, **changes)

    def with_rollout(self, **changes: Any) -> "ModelState":
        """Write the Rollout: pending writes that were decided on the old one are refused."""
        revision = f"{int(self.view.revision) + 1}"
        rollout = replace(self.view, revision=revision, **changes)
        return replace(self, pool=replace(self.pool, rollout=rollout))


class ModelSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Where an exploration begins, and what may happen on the way."""

    name: str
    nodes: int
    threshold: int
    targets: tuple[str, ...] = ()
    """Targets that the policy wants after B, one after another."""
    events: tuple[str, ...] = ()
    """Events that may happen, once each."""
    retries: int = 0


def initial_state(setup: ModelSetup) -> ModelState:
    """Return a pool in which all nodes run A and B is wanted."""
    initial_pool = pool(
        "B",
        targets=TARGETS,
        status={"phase": "Complete", "last_good": "A"},
        upgrade={"max_parallel_upgrades": 0, "max_unavailable": "100%"},
    )
    strategy = replace(
        initial_pool.strategy, failure_threshold=setup.threshold, retries=setup.retries
    )
    nodes = (clean(checked(required(f"n{n}", "A"), "B")) for n in range(setup.nodes))
    return ModelState(
        nodes={node_view.name: node_view for node_view in nodes},
        pool=replace(initial_pool, strategy=strategy),
        oracle=HarmOracle(),
        next_targets=setup.targets,
        events=setup.events,
    )


def checked(view: NodeView, target: str) -> NodeView:
    """Return the node with a passed preflight for the target."""
    preflight = PreflightQuery(label=label_of(target), asked_at=NOW - 2, answered_at=NOW - 1)
    return replace(view, preflight=preflight)


def clean(view: NodeView) -> NodeView:
    """Return the node without workloads, and with the required agents only."""
    components = {name: view.components[name] for name in ("driver", "validator")}
    return replace(view, pods=(), components=components, cordon_taint=view.cordoned)


def with_step_applied(view: NodeView, step: Step) -> NodeView:
    """Return the node after the writes of the step and the reaction of its machine."""
    node_writes = tuple(action for action in step.actions if isinstance(action, WriteNode))
    after = apply_step(replace(view, write_pending=False), replace(step, actions=node_writes))
    after = replace(after, cordon_taint=after.cordoned)
    if _is_started(after) and not _is_started(view):
        after = replace(after, driver_pods=(), loaded=None, gate=Gate())
    return after


def _is_started(view: NodeView) -> bool:
    return isinstance(view.record, NodeRecord) and view.record.started


def with_commands_done(view: NodeView, writes: Iterable[WriteSlot]) -> NodeView:
    """Return the node after its agents have carried out the commands."""
    components = dict(view.components)
    for write in writes:
        components[write.component] = replace(
            components[write.component],
            slot=write.command,
            result=ended(write.command),
            highest_order=write.command.order,
        )
    return replace(view, components=components)


def finish_validated(view: NodeView) -> NodeView:
    """Return the node after its validation, as the engine writes it."""
    record = view.record
    assert isinstance(record, NodeRecord)
    if record.label == "":
        return clean(node(view.name, pool=view.pool, uid=view.uid, revision=_next_revision(view)))
    validated = done(view.name, record.target)
    assert isinstance(validated.record, NodeRecord)
    proof = replace(not_none(validated.evidence), token=record.token, node_uid=view.uid)
    written = replace(validated.record, token=record.token, evidence=proof, node_uid=view.uid)
    return clean(
        replace(
            validated,
            uid=view.uid,
            pool=view.pool,
            revision=_next_revision(view),
            record=written,
            evidence=proof,
            components=_with_orders(view, record.token),
            preflight=view.preflight,
        )
    )


def finish_failed(view: NodeView) -> NodeView:
    """Return the node after a failure past the start, as the engine writes it."""
    record = view.record
    assert isinstance(record, NodeRecord)
    written = replace(
        record,
        state=UpgradeState.UPGRADE_FAILED,
        cause="driver-start: it never loaded",
        deadline=None,
        paused=False,
        unproven=True,
        evidence=None,
    )
    return replace(
        view,
        state=written.state,
        record=written,
        lease=None,
        cordoned=True,
        cordon_taint=True,
        field_managers=_managers(view) | {NodeField.CORDON: (MANAGER,)},
        revision=_next_revision(view),
        components=_with_orders(view, record.token),
        driver_pods=(),
        loaded=None,
        gate=Gate(),
    )


def finish_released(view: NodeView) -> NodeView:
    """Return the node given back before the start, because its pods did not leave."""
    record = view.record
    assert isinstance(record, NodeRecord)
    written = replace(
        record, state=UpgradeState.UPGRADE_REQUIRED, operation=None, deadline=None, paused=False
    )
    keeps_cordon = record.unproven
    managers = _managers(view) | ({NodeField.CORDON: (MANAGER,)} if keeps_cordon else {})
    return replace(
        view,
        state=written.state,
        record=written,
        lease=None,
        cordoned=keeps_cordon,
        cordon_taint=keeps_cordon,
        field_managers=managers,
        revision=_next_revision(view),
        components=_with_orders(view, record.token),
    )


def recover_driver(view: NodeView) -> NodeView:
    """Return a failed node whose driver came up by itself."""
    record = view.record
    assert isinstance(record, NodeRecord)
    validated = done(view.name, record.target)
    return replace(
        view,
        driver_pods=validated.driver_pods,
        loaded=LoadedDriver(version=version_of(record.target), loaded_at=NOW - 30),
        gate=validated.gate,
        revision=_next_revision(view),
    )


def _managers(view: NodeView) -> dict[NodeField, tuple[str, ...]]:
    dropped = (NodeField.LEASE, NodeField.CORDON)
    return {field: names for field, names in view.field_managers.items() if field not in dropped}


def _next_revision(view: NodeView) -> str:
    return f"{int(view.revision) + 1}"


def _with_orders(view: NodeView, token: int) -> dict[str, Any]:
    return {
        name: replace(component, highest_order=Order(token, 3))
        for name, component in view.components.items()
    }


def new_node(name: str, target: str) -> NodeView:
    return clean(checked(node(name), target))
