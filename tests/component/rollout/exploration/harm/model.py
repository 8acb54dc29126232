"""A pool of a few nodes at one moment: what is written, and what is on its way to be written.

Of a machine there is only what the engine asks for: when a node has started, its driver comes up or
does not. Decisions are the engine's own, and each of their writes takes effect when it may.
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
"""Nodes run the first."""


class PendingWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about a node, and is not in effect yet."""

    step: Step
    halted: frozenset[str]
    """Targets that were halted when it was decided."""


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    nodes: Mapping[str, NodeView]
    pool: PoolView
    truth: HarmOracle
    writes: Mapping[str, PendingWrite] = {}
    """By node."""
    rollout: WriteRollout | None = None
    """What the Rollout is to say, on its way."""
    halted: frozenset[str] = frozenset()
    """Targets that were halted when that was decided."""
    looks: int = 0
    """How often the scheduler looked."""
    wishes: tuple[str, ...] = ()
    """What the policy will want, one after another."""
    left: tuple[str, ...] = ()
    """What else may come between, once each."""

    @property
    def now(self) -> Instant:
        """A moment later at each look: what was proven last is the newest."""
        return instant(NOW + self.looks / 1000)

    @property
    def view(self) -> RolloutView:
        """The Rollout."""
        assert self.pool.rollout is not None
        return self.pool.rollout

    @property
    def status(self) -> RolloutStatus:
        """What it says."""
        return self.view.status

    def with_node(self, made: NodeView, **changes: Any) -> "ModelState":
        """One node is another."""
        return replace(self, nodes={**self.nodes, made.name: made}, **changes)

    def with_rollout(self, **changes: Any) -> "ModelState":
        """The Rollout is another: whatever is decided on the old one is refused."""
        revision = f"{int(self.view.revision) + 1}"
        rollout = replace(self.view, revision=revision, **changes)
        return replace(self, pool=replace(self.pool, rollout=rollout))


class ModelSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Where an exploration begins, and what may come between."""

    name: str
    nodes: int
    threshold: int
    wishes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    retries: int = 0
    parallel: int = 0
    unavailable: int | str = "100%"


def initial_state(terms: ModelSetup) -> ModelState:
    """All nodes run A in good order, and B is wanted."""
    made = pool(
        "B",
        targets=TARGETS,
        status={"phase": "Complete", "last_good": "A"},
        upgrade={
            "max_parallel_upgrades": terms.parallel,
            "max_unavailable": terms.unavailable,
        },
    )
    strategy = replace(made.strategy, failure_threshold=terms.threshold, retries=terms.retries)
    nodes = (clean(checked(required(f"n{n}", "A"), "B")) for n in range(terms.nodes))
    return ModelState(
        nodes={each.name: each for each in nodes},
        pool=replace(made, strategy=strategy),
        truth=HarmOracle(),
        wishes=terms.wishes,
        left=terms.left,
    )


def checked(made: NodeView, target: str) -> NodeView:
    """Its agent has said that nothing stands in the way of this target."""
    said = PreflightQuery(label=label_of(target), asked_at=NOW - 2, answered_at=NOW - 1)
    return replace(made, preflight=said)


def clean(made: NodeView) -> NodeView:
    """Nobody works there, and only agents without which nothing goes are expected."""
    parts = {name: made.components[name] for name in ("driver", "validator")}
    return replace(made, pods=(), components=parts, cordon_taint=made.cordoned)


def with_step_applied(made: NodeView, step: Step) -> NodeView:
    """The node when the step is in effect, and the machine has followed."""
    before = made
    node_writes = tuple(one for one in step.actions if isinstance(one, WriteNode))
    made = apply_step(replace(made, write_pending=False), replace(step, actions=node_writes))
    made = replace(made, cordon_taint=made.cordoned)
    if isinstance(made.record, NodeRecord) and made.record.started and not _started(before):
        made = replace(made, driver_pods=(), loaded=None, gate=Gate())
    return made


def answer_commands(made: NodeView, orders: Iterable[WriteSlot]) -> NodeView:
    """Its agents have done what they were told."""
    parts = dict(made.components)
    for one in orders:
        result = ended(one.command)
        order = one.command.order
        parts[one.component] = replace(
            parts[one.component], slot=one.command, result=result, highest_order=order
        )
    return replace(made, components=parts)


def _started(made: NodeView) -> bool:
    return isinstance(made.record, NodeRecord) and made.record.started


def finish_validated(made: NodeView) -> NodeView:
    """It is given back on evidence of its token, as `underway.ending` writes it."""
    record = made.record
    assert isinstance(record, NodeRecord)
    if record.label == "":
        return clean(node(made.name, pool=made.pool, uid=made.uid, revision=_next(made)))
    fine = done(made.name, record.target)
    assert isinstance(fine.record, NodeRecord)
    assert fine.evidence is not None
    proof = replace(fine.evidence, token=record.token, node_uid=made.uid)
    said = replace(fine.record, token=record.token, evidence=proof, node_uid=made.uid)
    return clean(
        replace(
            fine,
            uid=made.uid,
            pool=made.pool,
            revision=_next(made),
            record=said,
            evidence=proof,
            components=_heard(made, record.token),
            preflight=made.preflight,
        )
    )


def finish_failed(made: NodeView) -> NodeView:
    """It failed after the start, as `underway.ending` writes it; nothing is loaded."""
    record = made.record
    assert isinstance(record, NodeRecord)
    said = replace(
        record,
        state=UpgradeState.UPGRADE_FAILED,
        cause="driver-start: it never loaded",
        deadline=None,
        paused=False,
        unproven=True,
        evidence=None,
    )
    return replace(
        made,
        state=said.state,
        record=said,
        lease=None,
        cordoned=True,
        cordon_taint=True,
        field_managers=_owners(made) | {NodeField.CORDON: (MANAGER,)},
        revision=_next(made),
        components=_heard(made, record.token),
        driver_pods=(),
        loaded=None,
        gate=Gate(),
    )


def finish_released(made: NodeView) -> NodeView:
    """Its pods did not leave: it is given back unchanged, before the start."""
    record = made.record
    assert isinstance(record, NodeRecord)
    said = replace(
        record, state=UpgradeState.UPGRADE_REQUIRED, operation=None, deadline=None, paused=False
    )
    stays = record.unproven
    owners = _owners(made) | ({NodeField.CORDON: (MANAGER,)} if stays else {})
    return replace(
        made,
        state=said.state,
        record=said,
        lease=None,
        cordoned=stays,
        cordon_taint=stays,
        field_managers=owners,
        revision=_next(made),
        components=_heard(made, record.token),
    )


def recover_driver(made: NodeView) -> NodeView:
    """A failed node's driver came up after all, by itself."""
    record = made.record
    assert isinstance(record, NodeRecord)
    fine = done(made.name, record.target)
    return replace(
        made,
        driver_pods=fine.driver_pods,
        loaded=LoadedDriver(version=version_of(record.target), loaded_at=NOW - 30),
        gate=fine.gate,
        revision=_next(made),
    )


def _owners(made: NodeView) -> dict[NodeField, tuple[str, ...]]:
    kept = {
        field: names for field, names in made.field_managers.items() if field is not NodeField.LEASE
    }
    kept.pop(NodeField.CORDON, None)
    return kept


def _next(made: NodeView) -> str:
    return f"{int(made.revision) + 1}"


def _heard(made: NodeView, token: int) -> dict[str, Any]:
    """Its agents know of the operation."""
    return {
        name: replace(part, highest_order=Order(token, 3)) for name, part in made.components.items()
    }


def newcomer(name: str, target: str) -> NodeView:
    """A bare node joins."""
    return clean(checked(node(name), target))
