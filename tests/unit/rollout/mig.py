"""Nodes whose GPUs are to be divided, and a machine that divides them."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from libs.contracts.commands import GpuGeometry, Mig
from libs.contracts.node import MANAGER, NodeRecord
from libs.rollout.decision import NodeOutcome, Step
from libs.rollout.views.machine import WantedMig
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import NEW, NOW, done, granted, instant, pool, step
from tests.unit.rollout.in_flight.step_runner import react, run_step, with_results

GPUS = (GpuGeometry(uuid="GPU-1", index=0, mig=True, profiles=("1g.10gb",) * 7),)
DIGEST = "digest-of-seven"
SEVEN = WantedMig(config="all-1g.10gb", digest=DIGEST, gpus=GPUS, applied=False)


def divisible(view: NodeView, wanted: WantedMig | None = SEVEN, state: str = "") -> NodeView:
    """Return the node with a wanted geometry, agents that know `mig`, and this state label."""
    components = {
        name: replace(part, capabilities=part.capabilities | {"mig"})
        for name, part in view.components.items()
    }
    managers = dict(view.field_managers)
    if state:
        managers[NodeField.MIG_STATE] = (MANAGER,)
    return replace(
        view, mig=wanted, mig_state=state, components=components, field_managers=managers
    )


def at_rest(wanted: WantedMig | None = SEVEN, state: str = "", **changes: Any) -> NodeView:
    return replace(divisible(done(target=NEW, pods=()), wanted, state), **changes)


Answer = Callable[[NodeView], NodeView]
"""How the driver agent ends the command `mig`."""


def divided(node: NodeView) -> NodeView:
    return with_results(node, "driver")


def refused(code: str) -> Answer:
    def answer(node: NodeView) -> NodeView:
        message = "GPU-1 is in use"
        return with_results(node, "driver", outcome="failed", code=code, message=message)

    return answer


def reacted(node: NodeView, at: float, answer: Answer) -> NodeView:
    """Return the node a while later; its validator finds what the last `mig` has left."""
    node = react(node, instant(at))
    driver = node.components["driver"]
    slot, body = driver.slot, None if driver.slot is None else driver.slot.open()
    if slot is not None and isinstance(body, Mig):
        if driver.result is None or driver.result.order != slot.order:
            node = answer(node)
        result = node.components["driver"].result
        found = body.digest if result is not None and result.outcome == "done" else "none"
        if node.evidence is not None:
            node = replace(node, evidence=replace(node.evidence, mig_digest=found))
    return node


def run_division(
    node: NodeView,
    pool_view: PoolView | None = None,
    *,
    answer: Answer = divided,
    meanwhile: Callable[[NodeView], NodeView] | None = None,
    most: int = 40,
) -> tuple[NodeView, list[Step]]:
    """Decide, carry out and react from a granted start until the lease is gone."""
    steps: list[Step] = []
    at, policy = NOW, pool_view or granted(pool(NEW), node, target="")
    for _ in range(most):
        outcome: NodeOutcome = step(node, policy, instant(at))
        if isinstance(outcome, Step) and outcome.actions:
            steps.append(outcome)
            node = run_step(node, outcome)
        assert isinstance(node.record, NodeRecord)
        if steps and node.lease is None:
            return node, steps
        node = reacted(node, at, answer)
        node = meanwhile(node) if meanwhile is not None else node
        at += 2.0
    raise AssertionError(f"still {node.state} after {most} looks: {steps[-3:]}")
