"""Who leaps, who does not, how often somebody is looked at, and what that spares."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from libs.contracts.node import UpgradeState
from libs.contracts.reports import Finding, Preflight
from libs.forecast import play as playing
from libs.forecast.leaping import Leaps
from libs.forecast.plain import Way
from libs.forecast.stage import api, evictions
from libs.forecast.stage.paths import LEASE, RECORD
from libs.forecast.story import Story
from libs.forecast.world import Ending, Model, Oddity, Span, Steady
from libs.rollout.deciding import Deciding, News
from libs.rollout.decision import EvictPods, PodRef
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Shelter
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.forecast.emptying import NEW_LABEL, NODE, WEB, Emptying
from tests.unit.forecast.otherwise import Change, agent, are, machine, tenant, without
from tests.unit.forecast.plays import (
    EVICTED,
    IDLE_LIFE,
    awaiting_jobs,
    idle,
    old,
    places,
    work,
)
from tests.unit.rollout.building import POOL, fleet, instant

# What it spares.


class Counted:
    """One play, of which is counted how often is decided, about how many nodes, and who leaps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decisions = 0
        self.nodes = 0
        self.leapt: list[str] = []
        counted = self

        class Decided(Deciding):
            def decide(self, now: Instant) -> News:
                counted.decisions += 1
                return super().decide(now)

            def update(self, nodes: Iterable[NodeView] = (), *rest: Any, **others: Any) -> None:
                there = list(nodes)
                counted.nodes += len(there)
                super().update(there, *rest, **others)

        class Leapt(Leaps):
            def begun(self) -> Iterator[tuple[str, Way]]:
                for name, way in super().begun():
                    counted.leapt.append(name)
                    yield name, way

        monkeypatch.setattr(playing, "Deciding", Decided)
        monkeypatch.setattr(playing, "Leaps", Leapt)

    def play(
        self,
        *nodes: NodeView,
        pool: PoolView | None = None,
        leaping: bool = True,
        world: Model = Steady(),  # noqa: B008 - frozen
    ) -> Story:
        """From the start to the end."""
        self.decisions = self.nodes = 0
        self.leapt.clear()
        given = fleet(pool or places(), *nodes)
        return playing.play(given, instant(), pool=POOL, world=world, leaping=leaping)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_plain_node_is_looked_at_four_times(
    parallel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    nodes = [old(f"node-{number:02}", work(f"w{number}")) for number in range(12)]
    counted.play(*nodes, pool=places(parallel=parallel))
    assert sorted(counted.leapt) == [node.name for node in nodes]
    assert counted.nodes == 4 * len(nodes)
    assert counted.decisions == 3 + 2 * len(nodes) // parallel
    leaping = counted.nodes
    counted.play(*nodes, pool=places(parallel=parallel), leaping=False)
    assert counted.leapt == []
    assert counted.nodes > 10 * leaping


def test_who_is_not_plain_is_played_step_by_step_and_the_others_leap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    crashes = Steady(oddities=(Oddity(node="node-2", run=Ending(3600.0, 1)),))
    story = counted.play(*idle(3), world=crashes)
    assert sorted(counted.leapt) == ["node-1", "node-3"]
    assert story.courses["node-2"].end is not None


def test_who_waits_for_a_moment_is_not_looked_at_because_another_leaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    slow = Steady(oddities=(Oddity(pod="uid-train", remainder=Span(500.0)),))
    waiting = old("node-1", work("train", job=True))
    given = places(**awaiting_jobs(1000))
    counted.play(waiting, pool=given, world=slow)
    alone = counted.decisions
    story = counted.play(waiting, old("node-2", work("a")), pool=given, world=slow)
    assert story.courses["node-2"].end == pytest.approx(0.06 + IDLE_LIFE + EVICTED, abs=0.1)
    assert counted.decisions == alone + 2


@pytest.mark.parametrize("seconds", [1.0, 90.0, 280.0])
def test_time_alone_is_no_reason_to_look_at_who_leaps(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    slow = Steady(oddities=(Oddity(pod="uid-a", eviction=Span(seconds)),))
    counted.play(old("node-1", work("a")), pool=places(parallel=1), world=slow)
    assert (counted.leapt, counted.decisions) == (["node-1"], 5)


def test_a_failed_node_whose_driver_goes_on_crashing_is_no_reason_to_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    decisions: list[int] = []
    for hours in (4, 40):
        never = Oddity(node="node-1", load=Ending(5.0, 1))
        long = Oddity(pod="uid-train", remainder=Span(hours * 3600.0))
        nodes = old("node-1"), old("node-2", work("train", job=True))
        story = counted.play(
            *nodes, pool=places(**awaiting_jobs()), world=Steady(oddities=(never, long))
        )
        assert story.courses["node-1"].failed is not None
        assert story.courses["node-2"].end == pytest.approx(hours * 3600.0, abs=60)
        decisions.append(counted.decisions)
    assert decisions[0] == decisions[1]


def test_nodes_on_their_leap_are_not_on_the_ground() -> None:
    emptying = Emptying(WEB)
    leaps = Leaps(emptying.state)
    emptying.stage.changed()
    assert leaps.grounded == set()
    emptying.state.touch(NODE)
    assert leaps.grounded == {NODE}
    assert [name for name, _ in leaps.begun()] == [NODE]
    assert leaps.grounded == set()
    emptying.state.touch("node-else")
    assert leaps.grounded == {"node-else"}


# Who leaps.


def begins(emptying: Emptying, leaps: Leaps) -> bool:
    """Whether the node leaps now."""
    emptying.state.touch(NODE)
    return [name for name, _ in leaps.begun()] == [NODE]


def test_on_its_leap_it_is_held_back_and_then_given_back() -> None:
    emptying = Emptying(WEB)
    leaps, uid = Leaps(emptying.state), emptying.work.uid
    emptying.stage.changed()
    emptying.state.touch(NODE)
    ((name, way),) = leaps.begun()
    assert (name, way.leaving) == (NODE, (uid,))
    assert emptying.writing == 1
    assert emptying.node.taint
    emptying.stage.until(way.moves - 0.5)
    assert uid in emptying.machine.works
    emptying.stage.until(way.moves)
    assert uid not in emptying.machine.works
    emptying.stage.until(way.ends - 0.5)
    assert emptying.writing == 1
    assert leaps.grounded == set()
    emptying.stage.until(way.ends)
    assert emptying.writing == 0
    assert leaps.grounded == {NODE}
    assert api.value(emptying.node, LEASE) is None
    assert emptying.record.state == UpgradeState.UPGRADE_DONE


def test_each_lease_is_looked_at_once() -> None:
    emptying = Emptying(WEB)
    leaps = Leaps(emptying.state)
    emptying.machine.host_processes = 1
    assert not begins(emptying, leaps)
    emptying.machine.host_processes = 0
    assert not begins(emptying, leaps)
    emptying.say(token=emptying.record.token + 1)
    assert begins(emptying, leaps)
    assert not begins(emptying, leaps)


def test_while_a_request_is_not_answered_nobody_leaps() -> None:
    emptying = Emptying(WEB)
    leaps = Leaps(emptying.state)
    known = emptying.state.knows(NODE)
    known.writing = 1
    assert not begins(emptying, leaps)
    assert known.writing == 1
    known.writing = 0
    assert begins(emptying, leaps)


def test_whose_pods_are_asked_to_leave_already_does_not_leap() -> None:
    emptying = Emptying(WEB)
    uid = emptying.work.uid
    emptying.tenant(guarded=60.0)
    pods = (PodRef(namespace="work", name="web", uid=uid),)
    evictions.begin(emptying.state, NODE, EvictPods(pods=pods))
    assert emptying.way() is not None
    leaps = Leaps(emptying.state)
    assert not begins(emptying, leaps)
    evictions.begin(emptying.state, NODE, EvictPods(pods=()))
    assert not begins(emptying, leaps)
    assert begins(emptying, Leaps(emptying.state))


def unleased(emptying: Emptying) -> None:
    emptying.drop(LEASE)


def unrecorded(emptying: Emptying) -> None:
    emptying.drop(RECORD)


def gone(emptying: Emptying) -> None:
    api.delete_node(emptying.state, NODE, "person")


@pytest.mark.parametrize("change", [unleased, unrecorded, gone])
def test_without_a_node_its_lease_or_its_record_nobody_leaps(change: Change) -> None:
    emptying = Emptying(WEB)
    leaps = Leaps(emptying.state)
    change(emptying)
    assert not begins(emptying, leaps)


def test_a_node_that_waits_for_jobs_leaps_when_its_pods_are_next() -> None:
    emptying = Emptying(WEB)
    leaps = Leaps(emptying.state)
    emptying.say(state=UpgradeState.WAIT_FOR_JOBS_REQUIRED)
    assert not begins(emptying, leaps)
    emptying.say(state=UpgradeState.POD_DELETION_REQUIRED)
    assert begins(emptying, leaps)


# Whose preflight is taken as done.


UNCHECKED: dict[str, Change] = {
    "no pool": are(lambda node: node.node, pool="else"),
    "no build of the target": are(lambda node: node.pool, target="target-else"),
    "no build for the variant": are(lambda node: node.node, variant="rhel9"),
    "no driver agent": without("driver"),
    "a silent driver agent": agent("driver", silent_at=9000.0),
    "a process on the host": machine(host_processes=1),
    "something in the way": machine(obstacles=(Finding(code="disk", message="it is full"),)),
    "a pod of a DaemonSet": tenant(shelter=Shelter.DAEMON_SET),
    "a bare pod": tenant(bare=True),
    "a pod with an emptyDir": tenant(empty_dir=True),
}

CHECKED: dict[str, Change] = {
    "nothing else": are(lambda node: node.node),
    "no pod": lambda node: node.machine.works.clear(),
    "a silent plugin": agent("plugin", silent_at=9000.0),
    "a pod of a DaemonSet without a GPU": tenant(gpus=0, shelter=Shelter.DAEMON_SET),
    "a bare pod without a GPU": tenant(gpus=0, bare=True),
    "a pod without a GPU with an emptyDir": tenant(gpus=0, empty_dir=True),
}


@pytest.mark.parametrize("what", CHECKED)
def test_a_preflight_that_will_find_nothing_is_not_asked_for(what: str) -> None:
    emptying = Emptying(WEB)
    CHECKED[what](emptying)
    Leaps(emptying.state)
    seen = emptying.stage.node(NODE)
    assert seen is not None
    found = seen.preflight
    assert found is not None
    assert found.answer == Preflight(check=f"check-{NODE}", label=NEW_LABEL)
    assert (found.label, found.asked) == (NEW_LABEL, emptying.stage.now)


@pytest.mark.parametrize("what", UNCHECKED)
def test_with_this_a_preflight_is_asked_for(what: str) -> None:
    emptying = Emptying(WEB)
    UNCHECKED[what](emptying)
    known = emptying.state.knows(NODE)
    known.preflight = None
    Leaps(emptying.state)
    assert known.preflight is None
