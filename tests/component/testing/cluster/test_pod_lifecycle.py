"""The life of one pod on one machine, with a manual clock."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from libs.forecast.world import ProcessEnd, TimeSpan
from libs.kube.views import parse_time
from libs.runtime.env import SeededIds
from libs.testing.cluster.kubelet.container import (
    ContainerInstance,
    ContainerPhase,
    ContainerProcess,
    ProcessEvents,
    no_process,
)
from libs.testing.cluster.kubelet.pod_lifecycle import PodHost, PodLifecycle
from libs.testing.cluster.views import Pod
from libs.testing.stage.worlds import MachineModel, SteadyWorld, WorldOverride
from tests.builders.objects import condition, pod, seen

T0 = 1_800_000_000.0


class ManualClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = T0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class PodWorld:
    """A pod with one container, or with init containers before it."""

    def __init__(
        self,
        model: MachineModel | None = None,
        *,
        policy: str = "Always",
        image: str = "",
        processes: Callable[[Pod, str], ContainerProcess | None] = no_process,
        back_off: float = 1.0,
        message_policy: str = "File",
    ) -> None:
        self.clock = ManualClock()
        self.changes = 0
        self.machine = PodHost(
            node="n1",
            ip="10.0.0.1",
            addresses=iter(["10.1.0.1", "10.1.0.2"]),
            boot_id="boot-1",
            model=model or SteadyWorld(),
            clock=self.clock,
            ids=SeededIds(random.Random(1)),
            processes=processes,
            back_off=back_off,
        )
        wanted = pod("p", node="n1", image=image, restartPolicy=policy)
        wanted["metadata"]["resourceVersion"] = "1"
        wanted["spec"]["containers"][0]["terminationMessagePolicy"] = message_policy
        self.life = PodLifecycle(
            seen(Pod, wanted), host=self.machine, now=T0, on_change=self.count_change
        )

    def count_change(self) -> None:
        self.changes += 1

    def at(self, seconds: float) -> dict[str, Any]:
        """Set the time and advance the pod; return its status."""
        self.clock.time = T0 + seconds
        self.life.advance(self.clock.time)
        return self.life.status(self.clock.time)

    def main(self) -> dict[str, Any]:
        """Return the status of the first container, without moving time."""
        self.life.advance(self.clock.time)
        status = self.life.status(self.clock.time)
        return status["containerStatuses"][0]


def _conditions(status: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


def test_an_image_whose_name_cannot_be_one_is_never_pulled() -> None:
    for image in (f"r.example/driver:{'5' * 129}", "r.example/Driver:1", "r.example/driver:a b"):
        world = PodWorld(SteadyWorld(), image=image)
        assert world.at(600)["phase"] == "Pending"
        waiting = world.main()["state"]["waiting"]
        assert waiting["reason"] == "InvalidImageName"
        assert image in waiting["message"]
    assert PodWorld(SteadyWorld(), image="r.example:5000/driver:1").at(600)["phase"] == "Running"


@pytest.mark.parametrize(
    ("back_off", "expected"), [(1.0, [0, 10, 20, 40, 80]), (0.5, [0, 5, 10, 20, 40])]
)
def test_a_crashing_container_restarts_with_a_growing_delay(
    back_off: float, expected: list[int]
) -> None:
    model = SteadyWorld(
        pull_seconds=0.0, overrides=(WorldOverride(run=ProcessEnd(5.0, 1), ready=TimeSpan(1.0)),)
    )
    world = PodWorld(model, back_off=back_off)
    starts: list[float] = []
    ids: set[object] = set()
    while len(starts) < 6:
        due = world.life.next
        assert due is not None
        world.at(due - T0)
        container = world.life.containers[0]
        if container.state is ContainerPhase.RUNNING and (
            not starts or container.started_at - T0 != starts[-1]
        ):
            starts.append(container.started_at - T0)
            ids.add(world.main()["containerID"])
    pauses = [round(b - a - 5.0) for a, b in itertools.pairwise(starts)]
    assert pauses == expected
    assert world.main()["restartCount"] == 5
    assert len(ids) == 6


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("Never", 0, "Succeeded"),
        ("Never", 2, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 2, "Running"),
    ],
)
def test_a_job_ends_by_the_world_model(policy: str, code: int, phase: str) -> None:
    world = PodWorld(
        SteadyWorld(pull_seconds=0.0, overrides=(WorldOverride(job=ProcessEnd(60.0, code)),)),
        policy=policy,
    )
    assert world.at(59.0)["phase"] == "Running"
    assert world.at(60.0)["phase"] == phase


@pytest.mark.parametrize(("stop_seconds", "gone_after", "code"), [(4.0, 4.0, 0), (60.0, 30.0, 137)])
def test_a_pod_stops_by_itself_or_is_killed_after_its_grace_period(
    stop_seconds: float, gone_after: float, code: int
) -> None:
    world = PodWorld(SteadyWorld(pull_seconds=0.0, stop_seconds=stop_seconds))
    world.at(10)
    world.life.stop(world.clock.time, grace=30.0)
    assert not world.life.gone
    assert world.life.next == T0 + 10 + gone_after
    world.at(10 + gone_after)
    assert world.life.gone
    last = world.life.containers[0].last
    assert last is not None
    assert last.code == code


# Processes


class RecordingProcess:
    """A container process that does nothing and records its calls."""

    def __init__(self) -> None:
        self.events: list[ProcessEvents] = []
        self.calls: list[str] = []

    def begin(self, instance: ContainerInstance, events: ProcessEvents) -> None:
        self.events.append(events)
        self.calls.append(f"begin {instance.attempt}")

    def stop(self, instance: ContainerInstance) -> None:
        self.calls.append(f"stop {instance.attempt}")

    def end(self, instance: ContainerInstance) -> None:
        self.calls.append(f"end {instance.attempt}")


def _with_process(container: str, **more: Any) -> tuple[PodWorld, RecordingProcess]:
    process = RecordingProcess()
    model = SteadyWorld(pull_seconds=0.0, ready_seconds=1.0)
    world = PodWorld(
        model,
        processes=lambda _pod, name: process if name == container else None,
        **more,
    )
    return world, process


def test_a_process_is_restarted_and_events_of_its_former_instance_are_ignored() -> None:
    world, process = _with_process("main")
    world.at(5)
    process.events[0].exit(1)
    world.at(6)
    process.events[0].ready(True)
    assert _conditions(world.at(7))["Ready"] == "False"
    process.events[1].ready(True)
    assert _conditions(world.at(7))["Ready"] == "True"
    assert process.calls == ["begin 0", "end 0", "begin 1"]
    finished = world.main()["lastState"]["terminated"]["finishedAt"]
    assert parse_time(finished) == T0 + 5


@pytest.mark.parametrize(
    ("policy", "code", "kept"),
    [("FallbackToLogsOnError", 1, True), ("FallbackToLogsOnError", 0, False), ("File", 1, False)],
)
def test_the_end_of_a_failed_containers_log_is_its_termination_message(
    policy: str, code: int, kept: bool
) -> None:
    world, process = _with_process("main", message_policy=policy)
    world.at(5)
    for number in range(100):
        process.events[0].wrote(f"line {number}")
    process.events[0].exit(code)
    world.at(6)
    process.events[0].wrote("from the former instance")
    lines = [f"line {number}\n" for number in range(20, 100)]
    assert world.main()["lastState"]["terminated"].get("message", "") == (
        "".join(lines) if kept else ""
    )
    process.events[1].wrote("x" * 4000)
    process.events[1].exit(code)
    ended = world.at(7)["containerStatuses"][0]["lastState"]["terminated"]
    assert len(ended.get("message", "")) == (2048 if kept else 0)


# Status writes


def test_a_foreign_status_is_overwritten_and_a_stale_one_ignored() -> None:
    world = PodWorld(SteadyWorld(pull_seconds=0.0, ready_seconds=1.0))
    status = world.at(5)

    def response(revision: int, ready: bool) -> Pod:
        shown = {"phase": "Running", "conditions": [condition("Ready", ready)]}
        return seen(Pod, pod("p", meta={"resourceVersion": str(revision)}, status=shown))

    world.life.status_written(status, response(7, ready=True))
    world.life.pod_updated(response(6, ready=False))
    world.life.pod_updated(response(8, ready=True))
    assert world.life.written == status
    world.life.pod_updated(response(9, ready=False))
    assert world.life.written is None
