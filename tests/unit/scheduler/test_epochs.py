"""The epoch of a new leader."""

import pytest

from libs.contracts.node import NodeRecord
from libs.contracts.numbers import LIMIT
from libs.contracts.rollout import RolloutStatus
from libs.kube.views import Metadata
from services.scheduler.resources import Node, Rollout
from services.scheduler.role import next_epoch
from tests.builders import objects
from tests.builders.fleet import record, written
from tests.builders.objects import seen


def rollout(epoch: int) -> Rollout:
    return Rollout(metadata=Metadata(name="p"), status=RolloutStatus(epoch=epoch))


def node(epoch: int) -> Node:
    return recorded(record(epoch=epoch))


def recorded(record: NodeRecord | str) -> Node:
    return seen(Node, objects.node(annotations=written(record)))


@pytest.mark.parametrize(
    ("rollouts", "nodes", "in_slots", "epoch"),
    [
        ([], [], 0, 1),
        ([rollout(3), rollout(2)], [node(1)], 2, 4),
        ([rollout(1)], [node(1), node(5)], 2, 6),
        ([rollout(1)], [node(2)], 7, 8),
        ([], [node(9)], 0, 10),
        ([rollout(1)], [node(2), node(LIMIT)], 3, 4),
        ([], [node(2), node(2_000_000)], 0, 3),
        ([], [recorded("garbled")], 0, 1),
    ],
)
def test_a_new_epoch_is_above_all_known_ones(
    rollouts: list[Rollout], nodes: list[Node], in_slots: int, epoch: int
) -> None:
    assert next_epoch(rollouts, nodes, in_slots=in_slots) == epoch
