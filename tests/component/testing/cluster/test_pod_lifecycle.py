"""The life of one pod on one machine, moved through time by hand."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from libs.forecast.world import NEVER, ProcessEnd, SteadyWorld, TimeSpan, WorldModel, WorldOverride
from libs.kube.times import parse_time
from libs.runtime.ids import SeededIds
from libs.testing.cluster.kubelet.container import ContainerPhase
from libs.testing.cluster.kubelet.container_process import (
    ContainerInstance,
    ContainerProcess,
    ProcessEvents,
    no_process,
)
from libs.testing.cluster.kubelet.pod_lifecycle import PodHost, PodLifecycle
from libs.testing.cluster.views import Pod
from tests.component.testing.cluster.builders import pod

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
        model: WorldModel | None = None,
        *,
        init: tuple[str, ...] = (),
        policy: str = "Always",
        processes: Callable[[Pod, str], ContainerProcess | None] = no_process,
    ) -> None:
        self.clock = ManualClock()
        self.stirred = 0
        self.machine = PodHost(
            node="n1",
            ip="10.0.0.1",
            addresses=iter(["10.1.0.1", "10.1.0.2"]),
            boot_id="boot-1",
            model=model or SteadyWorld(),
            clock=self.clock,
            ids=SeededIds(random.Random(1)),
            processes=processes,
        )
        wanted = msgspec.to_builtins(pod("p", node="n1", phase="Pending", restart_policy=policy))
        wanted["spec"]["initContainers"] = [{"name": name} for name in init]
        self.life = PodLifecycle(
            msgspec.convert(wanted, Pod), machine=self.machine, now=T0, on_change=self.count_change
        )

    def count_change(self) -> None:
        self.stirred += 1

    def at(self, seconds: float) -> dict[str, Any]:
        """Let the time come, and give the status."""
        self.clock.time = T0 + seconds
        self.life.advance(self.clock.time)
        return self.life.status(self.clock.time)

    def main(self) -> dict[str, Any]:
        """The status of the container, without moving time."""
        self.life.advance(self.clock.time)
        status = self.life.status(self.clock.time)
        return status["containerStatuses"][0]


def _conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_it_is_pulled_starts_and_gets_ready() -> None:
    world = PodWorld(SteadyWorld(pull_seconds=2.0, ready_seconds=3.0))
    status = world.at(0)
    assert status["phase"] == "Pending"
    assert "podIP" not in status
    assert world.main()["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert world.at(2)["phase"] == "Running"
    assert _conditions(world.at(4.9))["Ready"] == "False"
    status = world.at(5)
    assert _conditions(status)["Ready"] == "True"
    assert world.life.next is None
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert parse_time(ready["lastTransitionTime"]) == T0 + 5


def test_init_containers_run_one_by_one_before_the_others() -> None:
    world = PodWorld(
        SteadyWorld(pull_seconds=1.0, init_seconds=4.0, ready_seconds=1.0), init=("a", "b")
    )
    states = [[box.state for box in world.life.boxes]]
    for moment in (1, 5, 6, 10, 11):
        world.at(moment)
        states.append([box.state for box in world.life.boxes])
    waiting, creating, running, ended = (
        ContainerPhase.WAITING,
        ContainerPhase.CREATING,
        ContainerPhase.RUNNING,
        ContainerPhase.ENDED,
    )
    assert states == [
        [creating, waiting, waiting],
        [running, waiting, waiting],
        [ended, creating, waiting],
        [ended, running, waiting],
        [ended, ended, creating],
        [ended, ended, running],
    ]
    assert _conditions(world.at(11))["Initialized"] == "True"
    assert _conditions(world.at(12))["Ready"] == "True"


def test_a_crashing_container_restarts_in_place_ever_later() -> None:
    model = SteadyWorld(
        pull_seconds=0.0, overrides=(WorldOverride(run=ProcessEnd(5.0, 1), ready=TimeSpan(1.0)),)
    )
    world = PodWorld(model)
    starts: list[float] = []
    ids: set[object] = set()
    while len(starts) < 6:
        due = world.life.next
        assert due is not None
        world.at(due - T0)
        box = world.life.boxes[0]
        if box.state is ContainerPhase.RUNNING and (
            not starts or box.started_at - T0 != starts[-1]
        ):
            starts.append(box.started_at - T0)
            ids.add(world.main()["containerID"])
    pauses = [round(b - a - 5.0) for a, b in itertools.pairwise(starts)]
    assert pauses == [0, 10, 20, 40, 80]
    assert world.main()["restartCount"] == 5
    assert len(ids) == 6


def test_between_two_starts_it_says_that_it_backs_off() -> None:
    world = PodWorld(
        SteadyWorld(pull_seconds=0.0, overrides=(WorldOverride(run=ProcessEnd(5.0, 3)),))
    )
    status = world.at(11)
    main = world.main()
    assert main["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert main["lastState"]["terminated"]["exitCode"] == 3
    assert status["phase"] == "Running"
    assert _conditions(status)["Ready"] == "False"


def test_attempts_are_counted_over_pods_of_one_machine() -> None:
    """The second pod of a workload works, where the model lets only the first attempt fail."""
    model = SteadyWorld(
        pull_seconds=0.0,
        ready_seconds=1.0,
        overrides=(WorldOverride(first_attempts=1, ready=NEVER),),
    )
    world = PodWorld(model)
    assert _conditions(world.at(1_000))["Ready"] == "False"
    again = PodLifecycle(
        world.life.pod, machine=world.machine, now=T0, on_change=world.count_change
    )
    again.advance(T0 + 1)
    assert again.boxes[0].ready


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("Never", 0, "Succeeded"),
        ("Never", 2, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 2, "Running"),
    ],
)
def test_a_job_ends_as_the_model_says(policy: str, code: int, phase: str) -> None:
    world = PodWorld(
        SteadyWorld(pull_seconds=0.0, overrides=(WorldOverride(job=ProcessEnd(60.0, code)),)),
        policy=policy,
    )
    assert world.at(59.0)["phase"] == "Running"
    assert world.at(60.0)["phase"] == phase


def test_an_init_container_that_fails_for_good_fails_the_pod() -> None:
    oddity = WorldOverride(container="gate", init=ProcessEnd(1.0, 1))
    never = PodWorld(SteadyWorld(overrides=(oddity,)), init=("gate",), policy="Never")
    assert never.at(10)["phase"] == "Failed"
    always = PodWorld(SteadyWorld(pull_seconds=0.0, overrides=(oddity,)), init=("gate",))
    assert always.at(10)["phase"] == "Pending"
    assert always.life.boxes[0].restarts == 1


@pytest.mark.parametrize(("takes", "gone_after", "code"), [(4.0, 4.0, 0), (60.0, 30.0, 137)])
def test_it_stops_in_its_own_time_or_is_killed(takes: float, gone_after: float, code: int) -> None:
    world = PodWorld(SteadyWorld(pull_seconds=0.0, stop_seconds=takes))
    world.at(10)
    world.life.stop(world.clock.time, grace=30.0)
    assert not world.life.gone
    assert world.life.next == T0 + 10 + gone_after
    world.at(10 + gone_after)
    assert world.life.gone
    last = world.life.boxes[0].last
    assert last is not None
    assert last.code == code


def test_a_shorter_grace_shortens_and_a_longer_one_does_not() -> None:
    world = PodWorld(SteadyWorld(pull_seconds=0.0, stop_seconds=60.0))
    world.at(10)
    for grace, due in ((30.0, 40.0), (100.0, 40.0), (5.0, 15.0)):
        world.life.stop(world.clock.time, grace=grace)
        assert world.life.next == T0 + due


def test_what_has_not_started_is_gone_at_once() -> None:
    world = PodWorld()
    world.life.stop(T0, grace=30.0)
    assert world.life.gone
    assert world.life.next is None


def test_a_reboot_restarts_everything_from_the_first_init_container() -> None:
    world = PodWorld(
        SteadyWorld(pull_seconds=1.0, init_seconds=1.0, ready_seconds=1.0), init=("gate",)
    )
    world.at(10)
    before = world.main()
    world.life.kill(T0 + 10)
    assert world.life.next is None
    world.machine.boot_id = "boot-2"
    world.life.restart(T0 + 100)
    status = world.at(103)
    after = world.main()
    assert _conditions(status)["Ready"] == "True"
    assert (before["restartCount"], after["restartCount"]) == (0, 1)
    assert before["containerID"] != after["containerID"]
    assert world.life.boxes[0].restarts == 1
    instance = world.life.boxes[1].instance
    assert instance is not None
    assert (instance.boot_id, instance.attempt) == ("boot-2", 1)


def test_a_job_does_not_survive_a_reboot_if_it_may_not_restart() -> None:
    world = PodWorld(SteadyWorld(pull_seconds=0.0), policy="Never")
    world.at(10)
    world.life.kill(T0 + 10)
    world.life.restart(T0 + 20)
    assert world.at(20)["phase"] == "Failed"


def test_what_has_succeeded_is_not_begun_again_by_a_reboot() -> None:
    world = PodWorld(
        SteadyWorld(pull_seconds=0.0, overrides=(WorldOverride(job=ProcessEnd(5.0)),)),
        policy="OnFailure",
    )
    world.at(4)
    world.life.kill(T0 + 4)
    world.life.restart(T0 + 100)
    assert world.at(105)["phase"] == "Succeeded"
    world.life.kill(T0 + 200)
    world.life.restart(T0 + 300)
    assert world.at(400)["phase"] == "Succeeded"
    assert world.main()["restartCount"] == 1


# Occupants


class RecordingProcess:
    """Does nothing by itself, and remembers what was done to it."""

    def __init__(self) -> None:
        self.events: list[ProcessEvents] = []
        self.calls: list[str] = []

    def begin(self, instance: ContainerInstance, voice: ProcessEvents) -> None:
        self.events.append(voice)
        self.calls.append(f"begin {instance.attempt}")

    def stop(self, instance: ContainerInstance) -> None:
        self.calls.append(f"stop {instance.attempt}")

    def end(self, instance: ContainerInstance) -> None:
        self.calls.append(f"end {instance.attempt}")


def _with_tenant(container: str, **more: Any) -> tuple[PodWorld, RecordingProcess]:
    tenant = RecordingProcess()
    model = SteadyWorld(pull_seconds=0.0, ready_seconds=1.0)
    world = PodWorld(
        model,
        processes=lambda _pod, name: tenant if name == container else None,
        **more,
    )
    return world, tenant


def test_a_gate_blocks_until_it_is_told() -> None:
    world, gate = _with_tenant("gate", init=("gate",))
    assert world.at(86_400)["phase"] == "Pending"
    gate.events[0].exit(0)
    assert world.stirred == 1
    assert _conditions(world.at(86_401))["Ready"] == "True"
    assert gate.calls == ["begin 0", "end 0"]


def test_an_occupant_says_when_it_is_ready_and_when_no_more() -> None:
    world, agent = _with_tenant("main")
    assert _conditions(world.at(3_600))["Ready"] == "False"
    agent.events[0].ready(True)
    assert _conditions(world.at(3_600))["Ready"] == "True"
    agent.events[0].ready(False)
    assert _conditions(world.at(3_601))["Ready"] == "False"
    assert world.stirred == 2


def test_an_occupant_that_exits_is_started_again_and_its_old_voice_is_not_heard() -> None:
    world, agent = _with_tenant("main")
    world.at(5)
    agent.events[0].exit(1)
    world.at(6)
    agent.events[0].ready(True)
    assert _conditions(world.at(7))["Ready"] == "False"
    agent.events[1].ready(True)
    assert _conditions(world.at(7))["Ready"] == "True"
    assert agent.calls == ["begin 0", "end 0", "begin 1"]
    finished = world.main()["lastState"]["terminated"]["finishedAt"]
    assert parse_time(finished) == T0 + 5


def test_an_occupant_is_asked_once_to_stop_and_killed_when_the_grace_is_over() -> None:
    world, agent = _with_tenant("main")
    world.at(5)
    world.life.stop(T0 + 5, grace=30.0)
    world.life.stop(T0 + 5, grace=30.0)
    world.at(34)
    assert not world.life.gone
    world.at(35)
    assert world.life.gone
    assert agent.calls == ["begin 0", "stop 0", "end 0"]


def test_an_occupant_may_end_before_its_grace_is_over() -> None:
    world, agent = _with_tenant("main")
    world.at(5)
    world.life.stop(T0 + 5, grace=30.0)
    agent.events[0].exit(0)
    world.at(6)
    assert world.life.gone


def test_an_occupant_loses_its_machine() -> None:
    world, agent = _with_tenant("main")
    world.at(5)
    world.life.kill(T0 + 5)
    world.life.restart(T0 + 60)
    world.at(60)
    assert agent.calls == ["begin 0", "end 0", "begin 1"]


# What the server is told


def test_another_who_writes_our_part_is_contradicted_but_old_news_are_not() -> None:
    world = PodWorld(SteadyWorld(pull_seconds=0.0, ready_seconds=1.0))
    status = world.at(5)

    def answer(revision: int, ready: bool) -> Pod:
        found = pod("p", node="n1", ready=ready)
        meta = msgspec.structs.replace(found.metadata, resource_version=str(revision))
        return msgspec.structs.replace(found, metadata=meta)

    world.life.status_written(status, answer(7, ready=True))
    world.life.pod_updated(answer(6, ready=False))
    world.life.pod_updated(answer(8, ready=True))
    assert world.life.written == status
    world.life.pod_updated(answer(9, ready=False))
    assert world.life.written is None


def test_what_another_wrote_before_our_own_answer_came_is_contradicted_too() -> None:
    world = PodWorld(SteadyWorld(pull_seconds=0.0, ready_seconds=1.0))
    status = world.at(5)

    def seen(revision: int, ready: bool) -> Pod:
        found = pod("p", node="n1", ready=ready)
        meta = msgspec.structs.replace(found.metadata, resource_version=str(revision))
        return msgspec.structs.replace(found, metadata=meta)

    world.life.pod_updated(seen(8, ready=False))
    world.life.status_written(status, seen(7, ready=True))
    assert world.life.written is None
    world.life.status_written(status, seen(9, ready=True))
    assert world.life.written == status
