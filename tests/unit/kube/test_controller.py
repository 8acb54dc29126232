"""The controller: outcomes, failures, hanging keys, stop and metrics."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families
from structlog.contextvars import get_contextvars
from structlog.testing import LogCapture

from libs.kube.controller import (
    SHORTEST_WAIT,
    Controller,
    ControllerMetrics,
    Reconciled,
    ReconcileRefused,
    ReconcileResult,
    RequeueAfter,
)
from libs.kube.errors import TooManyRequests
from libs.runtime.metrics import Metrics
from libs.runtime.tasks import Tasks
from libs.testing.simulation import Sim
from tests.unit.kube.world import SimWorld, in_virtual_time

if TYPE_CHECKING:
    from libs.kube.queue import WorkQueue
    from libs.runtime.fatal import Fatal

TIMEOUT = 10.0


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    capture = LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, capture])
    yield capture.entries
    structlog.reset_defaults()


class World(SimWorld):
    """A controller that runs as a service's task, and its attempts by time."""

    def __init__(self, sim: Sim) -> None:
        super().__init__(sim)
        self.queue: WorkQueue[str]
        """That of the controller which runs."""
        self.metrics = Metrics(version="test")
        self.controller_metrics = ControllerMetrics(self.metrics, controllers=["nodes", "pools"])
        self.failures: list[Fatal] = []
        self.tasks = Tasks("service", failed=self.failures.append)
        self.attempts: list[tuple[float, str]] = []

    async def close(self) -> None:
        await self.tasks.close()
        assert not self.failures

    def run(
        self,
        reconcile: Callable[[str], Coroutine[Any, Any, ReconcileResult]],
        *,
        concurrency: int = 2,
    ) -> None:
        async def recorded(key: str) -> ReconcileResult:
            self.attempts.append((self.clock.monotonic(), key))
            return await reconcile(key)

        controller = Controller(
            name="nodes",
            reconcile=recorded,
            concurrency=concurrency,
            timeout=TIMEOUT,
            env=self.sim.env(),
            metrics=self.controller_metrics,
        )
        self.queue = controller.queue
        self.tasks.forever("nodes", controller.run())

    def times(self, key: str) -> list[float]:
        return [time for time, attempted in self.attempts if attempted == key]

    def measured(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.metrics.render().decode()):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        raise LookupError(f"{name} {labels} is not shown")

    def ended(self, outcome: str) -> float:
        return self.measured("sluice_reconciles_total", controller="nodes", outcome=outcome)


@in_virtual_time(World)
async def test_what_is_done_rests_and_what_is_requeued_comes_again(world: World) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        return Reconciled() if key == "done" else RequeueAfter(60)

    world.run(reconcile)
    world.queue.add("done")
    world.queue.add("later")
    await world.clock.sleep(150)
    assert world.times("done") == [0]
    assert world.times("later") == [0, 60, 120]
    assert (world.ended("done"), world.ended("later")) == (1, 3)


@in_virtual_time(World)
async def test_a_wait_below_the_resolution_of_the_clock_ends(world: World) -> None:
    began, limit = 24.89629265533343, 10.0

    async def reconcile(key: str) -> ReconcileResult:
        missing = world.clock.monotonic() - began
        return Reconciled() if missing >= limit else RequeueAfter(limit - missing)

    world.run(reconcile)
    await world.clock.sleep(began)
    world.queue.add("a")
    await world.clock.sleep(60)
    first, too_early, last = world.times("a")
    assert first == began
    assert 0 < limit - (too_early - began) < 1e-14
    assert last == pytest.approx(too_early + SHORTEST_WAIT)


@in_virtual_time(World)
async def test_a_refusal_is_counted_logged_once_and_not_retried(
    world: World, logged: list[Any]
) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        return ReconcileRefused("the pool has no nodes")

    world.run(reconcile)
    for _ in range(3):
        world.queue.add("a")
        await world.clock.sleep(3600)
    assert len(world.attempts) == 3
    assert world.ended("refused") == 3
    assert [(line["event"], line["why"]) for line in logged] == [
        ("reconcile was refused", "the pool has no nodes")
    ]


@in_virtual_time(World)
async def test_a_refusal_that_something_unseen_may_end_is_tried_again(world: World) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        return ReconcileRefused("no right", again_in=60.0)

    world.run(reconcile)
    world.queue.add("a")
    await world.clock.sleep(150)
    assert world.times("a") == [0, 60, 120]
    assert world.ended("refused") == 3


@in_virtual_time(World)
async def test_a_failure_is_retried_with_back_off_until_it_succeeds(world: World) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        if len(world.attempts) % 5:
            raise ValueError("not yet")
        return Reconciled()

    world.run(reconcile)
    for start in (0.0, 100.0):
        world.attempts.clear()
        world.queue.add("a")
        await world.clock.sleep(100)
        waits = [0, 0.005, 0.015, 0.035, 0.075]
        assert world.times("a") == pytest.approx([start + wait for wait in waits])
    assert (world.ended("failed"), world.ended("done")) == (8, 2)


@pytest.mark.parametrize(
    "result", [Reconciled(), RequeueAfter(1000), ReconcileRefused("no")], ids=str
)
@in_virtual_time(World)
async def test_any_result_resets_the_back_off(world: World, result: ReconcileResult) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        if len(world.attempts) % 3 == 0:
            return result
        raise ValueError("not yet")

    world.run(reconcile)
    for start in (0.0, 100.0):
        world.queue.add("a")
        await world.clock.sleep(100)
        assert world.times("a")[-3:] == pytest.approx([start, start + 0.005, start + 0.015])


@in_virtual_time(World)
async def test_a_failure_is_logged_once_per_cause_and_so_is_its_end(
    world: World, logged: list[Any]
) -> None:
    causes = ["revision 17 is stale", "revision 18 is stale", "no route", "no route", ""]

    async def reconcile(key: str) -> ReconcileResult:
        why = causes[len(world.attempts) - 1]
        if why:
            raise ValueError(why)
        return Reconciled()

    world.run(reconcile)
    world.queue.add("a")
    await world.clock.sleep(0.05)
    await world.clock.sleep(100)
    assert [(line["event"], str(line.get("exc_info", ""))) for line in logged] == [
        ("reconcile failed", "revision 17 is stale"),
        ("reconcile failed", "no route"),
        ("reconcile succeeded again", ""),
    ]
    assert {(line["controller"], line["key"]) for line in logged} == {("nodes", "a")}
    assert len({line["reconcile"] for line in logged}) == 3


@in_virtual_time(World)
async def test_each_attempt_has_its_own_id_in_the_log(world: World) -> None:
    names: list[str] = []

    async def reconcile(key: str) -> ReconcileResult:
        context = get_contextvars()
        assert (context["controller"], context["key"]) == ("nodes", key)
        names.append(context["reconcile"])
        return Reconciled()

    world.run(reconcile, concurrency=1)
    for key in ("a", "b", "a"):
        world.queue.add(key)
        await world.clock.sleep(1)
    assert len(set(names)) == 3
    assert "reconcile" not in get_contextvars()


@pytest.mark.parametrize(("seconds", "waited"), [(7.0, 7.0), (1e9, 300.0)])
@in_virtual_time(World)
async def test_retry_after_is_honoured_up_to_a_limit(
    world: World, seconds: float, waited: float
) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        if len(world.attempts) == 1:
            raise TooManyRequests("GET /", "running", code=429, retry_after=seconds)
        return Reconciled()

    world.run(reconcile)
    world.queue.add("a")
    await world.clock.sleep(1000)
    assert world.times("a") == [0, waited]


@in_virtual_time(World)
async def test_a_hanging_key_occupies_one_worker_until_its_timeout(world: World) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        if key == "hangs":
            await asyncio.Event().wait()
        return Reconciled()

    world.run(reconcile)
    world.queue.add("hangs")
    for number in range(100):
        world.queue.add(str(number))
    await world.clock.sleep(0.1)
    assert world.ended("done") == 100
    await world.clock.sleep(30)
    assert world.times("hangs") == pytest.approx([0, 10.005, 20.015, 30.035])
    assert world.ended("timed_out") == 3
    assert world.measured("sluice_queue_working", controller="nodes") == 1
    count = world.measured("sluice_reconcile_seconds_count", controller="nodes")
    assert count == 103


@in_virtual_time(World)
async def test_a_timeout_inside_reconcile_counts_as_a_failure(world: World) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        if len(world.attempts) == 1:
            async with asyncio.timeout(1):
                await asyncio.Event().wait()
        return Reconciled()

    world.run(reconcile)
    world.queue.add("a")
    await world.clock.sleep(30)
    assert (world.ended("failed"), world.ended("timed_out"), world.ended("done")) == (1, 0, 1)


@in_virtual_time(World)
async def test_a_cancellation_inside_reconcile_does_not_cost_a_worker(world: World) -> None:
    async def reconcile(key: str) -> ReconcileResult:
        if len(world.attempts) <= 3:
            inner = asyncio.create_task(asyncio.sleep(5))
            inner.cancel()
            await inner
        return Reconciled()

    world.run(reconcile, concurrency=1)
    world.queue.add("a")
    await world.clock.sleep(1)
    assert (world.ended("failed"), world.ended("done")) == (3, 1)


@in_virtual_time(World)
async def test_concurrency_is_limited(world: World) -> None:
    running: list[int] = [0]
    counts: list[int] = []

    async def reconcile(key: str) -> ReconcileResult:
        running[0] += 1
        counts.append(running[0])
        await world.clock.sleep(1)
        running[0] -= 1
        return Reconciled()

    world.run(reconcile, concurrency=3)
    for number in range(9):
        world.queue.add(str(number))
    await world.clock.sleep(10)
    assert max(counts) == 3
    assert world.attempts[-1][0] == 2


class SlowReconciler(msgspec.Struct):
    """Take the number of seconds in the key, and record how each attempt ended."""

    world: World
    ends: list[tuple[float, str]] = []

    async def reconcile(self, key: str) -> ReconcileResult:
        end = "cancelled"
        try:
            await self.world.clock.sleep(float(key))
            end = "ended"
        finally:
            self.ends.append((self.world.clock.monotonic(), end))
        return Reconciled()


@in_virtual_time(World)
async def test_a_stop_cancels_the_running_keys_at_once_and_starts_none(world: World) -> None:
    slow = SlowReconciler(world)
    world.run(slow.reconcile, concurrency=2)
    for key in ("3", "9", "1"):
        world.queue.add(key)
    await world.clock.sleep(1)
    await world.tasks.stop_forever()
    assert slow.ends == [(1, "cancelled"), (1, "cancelled")]
    assert sum(world.ended(outcome) for outcome in ("done", "failed", "timed_out")) == 0
    assert world.queue.stats().working == 0


@in_virtual_time(World)
async def test_every_series_exists_at_zero_from_the_start(world: World) -> None:
    world.run(SlowReconciler(world).reconcile)
    for outcome in ("done", "later", "refused", "failed", "timed_out"):
        for controller in ("nodes", "pools"):
            labels = {"controller": controller, "outcome": outcome}
            assert world.measured("sluice_reconciles_total", **labels) == 0
    for name in ("waiting", "delayed", "working", "oldest_seconds", "added_total"):
        assert world.measured(f"sluice_queue_{name}", controller="nodes") == 0
    world.queue.add("3")
    world.queue.add_after("4", 5)
    assert world.measured("sluice_queue_waiting", controller="nodes") == 1
    assert world.measured("sluice_queue_delayed", controller="nodes") == 1
    assert world.measured("sluice_queue_added_total", controller="nodes") == 1
    await world.clock.sleep(0.1)
    assert world.measured("sluice_queue_waiting", controller="nodes") == 0
    assert world.measured("sluice_queue_working", controller="nodes") == 1
