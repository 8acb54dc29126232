"""The incumbent's budget."""

import re

import pytest

from bench.comparison import ComparedFleet
from bench.recreation.nodes import (
    IncumbentBudget,
    IncumbentDriverPod,
    IncumbentNode,
    PassAborted,
    budget,
    group_by_state,
    scaled,
)
from bench.recreation.passes import apply
from libs.contracts.node import UpgradeState as State
from tests.unit.bench.recording_actions import RecordingActions

GOLDEN = """\
| 10 required | 1 | 25% | 10 | 0 | 0 | 3 | 1 | 1 |
| 10 required | 0 | 25% | 10 | 0 | 0 | 3 | 3 | 3 |
| 10 required | 5 | 25% | 10 | 0 | 0 | 3 | 3 | 3 |
| 1 required | 1 | 25% | 1 | 0 | 0 | 1 | 1 | 1 |
| 3 required | 0 | 1% | 3 | 0 | 0 | 1 | 1 | 1 |
| 4 required | 0 | 0 | 4 | 0 | 0 | 0 | 0 | 0 |
| 6 done + 3 done NotReady + 1 required | 1 | 25% | 10 | 0 | 3 | 3 | 0 | 0 |
| 8 required + 2 failed (cordoned) | 2 | 50% | 10 | 2 | 2 | 5 | 0 | 0 |
| 8 required, first 2 have skip label | 2 | 100% | 8 | 0 | 0 | 8 | 2 | 2 (skips use no slot) |
| 5 required + 3 required cordoned | 0 | 8 (= managed) | 8 | 0 | 3 | 8 | 8 | 8 |
| 5 required | 0 | 20 (int > managed) | 5 | 0 | 0 | 20 | 5 | 5 |
"""
"""Snapshot, maxParallel, maxUnavailable; the five figures of a `Budget`; how many are started."""

ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in GOLDEN.splitlines()]
STATES = {
    "required": State.UPGRADE_REQUIRED,
    "done": State.UPGRADE_DONE,
    "failed": State.UPGRADE_FAILED,
}


def _nodes(words: str) -> list[IncumbentNode]:
    """As a snapshot is written in the table."""
    words, _, skipped = words.partition(", first ")
    nodes: list[IncumbentNode] = []
    for part in words.split(" + "):
        count, state, *rest = part.split()
        for _ in range(int(count)):
            nodes.append(
                IncumbentNode(
                    name=f"n{len(nodes)}",
                    state=STATES[state],
                    pod=IncumbentDriverPod(synced=state == "done"),
                    cordoned="cordoned" in " ".join(rest),
                    ready="NotReady" not in rest,
                )
            )
    for node in nodes[: int(skipped.split()[0]) if skipped else 0]:
        node.skipped = True
    return nodes


def _value(cell: str) -> int | str:
    value = re.sub(r" \(.*", "", cell)
    return value if value.endswith("%") else int(value)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} | {row[1]} | {row[2]}")
def test_an_example(row: list[str]) -> None:
    words, parallel, unavailable, *figures, started = row
    nodes = _nodes(words)
    fleet = ComparedFleet(
        nodes=len(nodes), max_parallel=int(parallel), max_unavailable=_value(unavailable)
    )
    groups = group_by_state(nodes)
    assert budget(
        groups, max_parallel=fleet.max_parallel, max_unavailable=fleet.max_unavailable
    ) == IncumbentBudget(*map(int, figures))
    apply(groups, fleet, RecordingActions())
    assert sum(node.state == State.CORDON_REQUIRED for node in nodes) == _value(started)


def _budget(
    nodes: list[IncumbentNode], parallel: int, unavailable: int | str | None
) -> IncumbentBudget:
    return budget(group_by_state(nodes), max_parallel=parallel, max_unavailable=unavailable)


def test_without_a_limit_every_node_may_be_unavailable() -> None:
    nodes = [
        IncumbentNode(name=f"n{n}", state=State.UPGRADE_REQUIRED, cordoned=n < 3) for n in range(8)
    ]
    assert _budget(nodes, 0, None) == IncumbentBudget(8, 0, 3, 8, 8)


def test_the_free_slots_are_negative_beyond_the_budget() -> None:
    nodes = [IncumbentNode(name=f"n{n}", state=State.VALIDATION_REQUIRED) for n in range(3)]
    assert _budget(nodes, 1, "100%").slots == -2


def test_a_cordoned_node_that_waits_for_its_cordon_counts_twice() -> None:
    nodes = [
        IncumbentNode(name="n0", state=State.CORDON_REQUIRED, cordoned=True),
        *(IncumbentNode(name=f"n{n}", state=State.UPGRADE_REQUIRED) for n in range(1, 4)),
    ]
    assert _budget(nodes, 0, 2) == IncumbentBudget(4, 1, 2, 2, 0)


def test_nodes_in_maintenance_or_with_a_foreign_state_are_not_managed() -> None:
    states = (State.NODE_MAINTENANCE_REQUIRED, "somebody's", State.UPGRADE_REQUIRED)
    nodes = [IncumbentNode(name=state, state=state) for state in states]
    assert _budget(nodes, 0, None).managed == 1


def test_a_malformed_percentage_stops_the_pass() -> None:
    assert (scaled("1%", 150), scaled("100%", 7), scaled(20, 5)) == (2, 7, 20)
    with pytest.raises(PassAborted, match="'5' is neither a number nor a percentage"):
        scaled("5", 10)
