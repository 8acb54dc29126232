"""Which epoch a new leader takes: above every one that somebody may have obeyed.

A Rollout can be lost, and with it the epoch that it held; Nodes and command slots remember.
"""

from collections.abc import Iterable, Iterator

from libs.contracts.node import Record
from services.scheduler import reading
from services.scheduler.things import Node, Rollout


def next_epoch(rollouts: Iterable[Rollout], nodes: Iterable[Node], *, in_slots: int) -> int:
    """One above the highest, of which `in_slots` is that of the command slots."""
    return 1 + max(in_slots, *_written(rollouts, nodes), 0)


def _written(rollouts: Iterable[Rollout], nodes: Iterable[Node]) -> Iterator[int]:
    for one in rollouts:
        yield one.status.epoch
    for node in nodes:
        record = reading.record(node)
        if isinstance(record, Record):
            yield record.epoch
