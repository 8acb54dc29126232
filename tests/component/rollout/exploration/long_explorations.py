"""Explorations that take minutes or hours, each by its name; the short ones are tests.

`python -m tools.soak explore` runs them.
"""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from tests.component.rollout.exploration import explorer
from tests.component.rollout.exploration.harm import explorer as harm
from tests.component.rollout.exploration.harm.model import ModelSetup
from tests.component.rollout.exploration.starts import ACTS, FAULTS, bring_up, each, upgrade

OPENED = {"upgrade": upgrade, "bring-up": bring_up}

DISTURBANCES = (
    "release B",
    "a node is deleted",
    "a node leaves the pool",
    "a node joins",
    "pods do not leave",
    "a write is lost",
    "a failed driver comes up",
)
"""What may come between in a pool of a few nodes."""


class LongExplorationResult(msgspec.Struct, frozen=True):
    """What came of one of them."""

    states: int
    whole: bool
    wrong: str


LongExploration = Callable[[int], LongExplorationResult]


def long_explorations() -> dict[str, LongExploration]:
    """All of them: given how many states at most."""
    return dict((*_one_node(), *_few_nodes()))


def _one_node() -> Iterator[tuple[str, LongExploration]]:
    """Any two events swap places, and in between something breaks, or somebody acts."""
    for opening in OPENED:
        yield f"{opening}, two swaps", partial(_swapped, opening, "", 2)
        for fault in FAULTS:
            yield f"{opening}, one swap, {fault}", partial(_swapped, opening, fault, 1)
        for act in ACTS:
            yield f"{opening}, one swap, {act}", partial(_swapped, opening, act, 1)


def _swapped(opening: str, what: str, swaps: int, most: int) -> LongExplorationResult:
    scene = explorer.ExplorationStart(
        name=f"{opening} {what}",
        opened=OPENED[opening],
        faults=each([what]) if what in FAULTS else (),
        acts=each([what]) if what in ACTS else (),
    )
    found = explorer.explore(scene, swaps=swaps, most=most)
    return LongExplorationResult(found.states, found.whole, found.wrong)


def _few_nodes() -> Iterator[tuple[str, LongExploration]]:
    """Harm with T of two and more, while policies flap and pools shrink."""
    for nodes in (2, 3, 4):
        for wishes in (("C",), ("C", "B"), ("A", "B")):
            terms = ModelSetup(name="flapping", nodes=nodes, threshold=2, wishes=wishes)
            yield f"{nodes} nodes, B > {' > '.join(wishes)}", partial(_harmed, terms)
        for what in DISTURBANCES:
            terms = ModelSetup(name=what, nodes=nodes, threshold=2, left=(what,), retries=1)
            yield f"{nodes} nodes, {what}", partial(_harmed, terms)
            edited = msgspec.structs.replace(terms, wishes=("C", "B"))
            yield f"{nodes} nodes, {what}, B > C > B", partial(_harmed, edited)


def _harmed(terms: ModelSetup, most: int) -> LongExplorationResult:
    found = harm.explore(terms, most=most)
    return LongExplorationResult(found.states, found.whole, found.wrong)
