"""The last batch of each node, and the count of its XIDs."""

import gc
import tracemalloc

import pytest

from services.telemetry.cluster import fleet as fleet_module
from services.telemetry.cluster.fleet import SILENT_AFTER, BatchCache
from tests.builders import gpus
from tests.builders.gpus import batch, sample

COUNTED = (
    tracemalloc.Filter(inclusive=True, filename_pattern=fleet_module.__file__, all_frames=True),
    tracemalloc.Filter(inclusive=True, filename_pattern=gpus.__file__),
)
"""What the cache allocates, at any depth, and the batches: not what else the process does."""


def names(cache: BatchCache, *, now: float) -> list[str]:
    return [name for name, _ in cache.current(now=now)]


def test_a_silent_node_is_left_out_until_its_next_batch() -> None:
    cache = BatchCache()
    cache.add(batch(node="b"), now=0.0)
    cache.add(batch(node="a"), now=50.0)
    assert names(cache, now=SILENT_AFTER) == ["a", "b"]
    assert names(cache, now=SILENT_AFTER + 1) == ["a"]
    assert names(cache, now=SILENT_AFTER + 51) == []
    cache.add(batch(node="b", seq=1), now=200.0)
    assert names(cache, now=200.0) == ["b"]


def test_xids_are_counted_once_in_each_run() -> None:
    cache = BatchCache()
    batches = [(0, 0), (1, 2), (2, 2), (3, 3)]
    assert [cache.add(batch(seq=seq, xids=xids), now=0.0) for seq, xids in batches] == [0, 2, 0, 1]
    assert cache.add(batch(run="two", seq=0, xids=0), now=0.0) == 0
    assert cache.add(batch(run="two", seq=9, xids=4), now=0.0) == 4
    assert cache.xids("a") == 7


@pytest.mark.parametrize(
    ("batches", "counted"),
    [
        ([("one", 0, 0), ("one", 5, 3)], [0, 3]),
        (
            [("one", 0, 0), ("one", 1, 5), ("two", 0, 1), ("one", 2, 6), ("two", 1, 1)],
            [0, 5, 1, 1, 0],
        ),
        ([("one", 700, 12), ("one", 701, 13)], [0, 1]),
        ([("one", 0, 2)], [2]),
    ],
    ids=[
        "a lost batch loses none",
        "overlapping runs count once",
        "none before the first batch",
        "the first of a run",
    ],
)
def test_xids_are_counted_by_run_and_number(
    batches: list[tuple[str, int, int]], counted: list[int]
) -> None:
    cache = BatchCache()
    new = [cache.add(batch(run=run, seq=seq, xids=xids), now=0.0) for run, seq, xids in batches]
    assert new == counted


def test_a_forgotten_node_has_neither_batch_nor_xids() -> None:
    cache = BatchCache()
    cache.add(batch(seq=0, xids=2), now=0.0)
    cache.forget("a")
    cache.forget("unknown")
    assert names(cache, now=0.0) == []
    assert cache.xids("a") == 0


def test_memory_does_not_grow_with_the_number_of_batches() -> None:
    cache, fleet = BatchCache(), [f"node-{number}" for number in range(250)]

    def memory_after(run: str) -> int:
        for node in fleet:
            samples = [sample(index, temperature_c=40) for index in (0, 1)]
            cache.add(batch(*samples, node=node, run=run), now=0.0)
        gc.collect()
        counted = tracemalloc.take_snapshot().filter_traces(COUNTED)
        return sum(trace.size for trace in counted.traces)

    tracemalloc.start(5)  # deeper than the cache's own calls
    try:
        first = memory_after("one")
        memory_after("two")
        settled = memory_after("three")
        memory_after("four")
        last = memory_after("five")
    finally:
        tracemalloc.stop()
    assert first < len(fleet) * 2_000
    assert last - settled < len(fleet) * 200
