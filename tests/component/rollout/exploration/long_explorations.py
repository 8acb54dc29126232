"""Explorations that take minutes or hours, by name, for `python -m tools.soak explore`."""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from tests.component.rollout.exploration import explorer
from tests.component.rollout.exploration.harm import explorer as harm
from tests.component.rollout.exploration.harm.model import ModelSetup
from tests.component.rollout.exploration.starts import (
    ACTS,
    FAULTS,
    bring_up,
    bring_up_tainted,
    disturbances,
    divide,
    divide_and_upgrade,
    upgrade,
    upgrade_with_broken_gpus,
    upgrade_with_failed_gpu,
    upgrade_with_image,
)

STARTS = {
    "upgrade": upgrade,
    "bring-up": bring_up,
    "bring-up with a startup taint": bring_up_tainted,
    "upgrade with an image": upgrade_with_image,
    "upgrade with a failed GPU": upgrade_with_failed_gpu,
    "upgrade with broken GPUs": upgrade_with_broken_gpus,
    "MIG change": divide,
    "MIG change and upgrade": divide_and_upgrade,
}
ONE_NODE_FAULTS = (*FAULTS, "fail_gpus")
ONE_NODE_ACTS = (*ACTS, "take_lease", "taint", "untaint", "set_mig_config")

POOL_EVENTS = (
    "release B",
    "a node is deleted",
    "a node leaves the pool",
    "a node joins",
    "pods do not leave",
    "a write is lost",
    "a failed driver comes up",
)
"""What may happen on the way in a pool of a few nodes."""


class LongExplorationResult(msgspec.Struct, frozen=True):
    states: int
    complete: bool
    failure: str


LongExploration = Callable[[int], LongExplorationResult]
"""Explores up to so many states."""


def long_explorations() -> dict[str, LongExploration]:
    return dict((*_one_node(), *_few_nodes()))


def _one_node() -> Iterator[tuple[str, LongExploration]]:
    """Yield explorations with swaps, and with a swap and a fault or an act."""
    for start in STARTS:
        yield f"{start}, two swaps", partial(_explore_order, start, "", 2)
        for what in (*ONE_NODE_FAULTS, *ONE_NODE_ACTS):
            yield f"{start}, one swap, {what}", partial(_explore_order, start, what, 1)


def _explore_order(start: str, what: str, swaps: int, most: int) -> LongExplorationResult:
    found = explorer.explore(
        explorer.ExplorationStart(
            name=f"{start} {what}",
            new_stage=STARTS[start],
            faults=disturbances([what]) if what in ONE_NODE_FAULTS else (),
            acts=disturbances([what]) if what in ONE_NODE_ACTS else (),
        ),
        swaps=swaps,
        most=most,
    )
    return LongExplorationResult(found.states, found.complete, found.failure)


def _few_nodes() -> Iterator[tuple[str, LongExploration]]:
    """Yield explorations of harm with a threshold of two, while targets flap and pools shrink."""
    for nodes in (2, 3, 4):
        for targets in (("C",), ("C", "B"), ("A", "B")):
            setup = ModelSetup(name="flapping", nodes=nodes, threshold=2, targets=targets)
            yield f"{nodes} nodes, B > {' > '.join(targets)}", partial(_explore_harm, setup)
        for what in POOL_EVENTS:
            setup = ModelSetup(name=what, nodes=nodes, threshold=2, events=(what,), retries=1)
            yield f"{nodes} nodes, {what}", partial(_explore_harm, setup)
            edited = msgspec.structs.replace(setup, targets=("C", "B"))
            yield f"{nodes} nodes, {what}, B > C > B", partial(_explore_harm, edited)


def _explore_harm(setup: ModelSetup, most: int) -> LongExplorationResult:
    found = harm.explore(setup, most=most)
    return LongExplorationResult(found.states, found.complete, found.failure)
