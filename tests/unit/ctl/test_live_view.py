"""The live view beside its frames: what is known of the fleet, and what keys do."""

from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from libs.contracts.events import (
    CommandEvent,
    Event,
    EventBody,
    PlanEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.identities import Writer
from libs.contracts.node import LEASE_ANNOTATION, SKIP_LABEL, STATE_LABEL, NodeRecord
from libs.contracts.rollout import Counts, RolloutStatus
from libs.contracts.telemetry import GpuSample
from libs.contracts.waits import WaitCode
from libs.ctl.failures import Failure
from libs.ctl.views.frame.compose import frame
from libs.ctl.views.frame.text import text_of
from libs.ctl.watch.actions import planned_write
from libs.ctl.watch.keys import Action, keys_of, press
from libs.ctl.watch.listed import KEPT_EVENTS, ListedEvents
from libs.ctl.watch.screen import Guide, Layout, Panel, Screen, Watched, with_newer_answer
from libs.ctl.watch.telemetry import PageReader, require_address
from libs.fleet.node import Doing, GpuUse, LastCommand
from libs.fleet.pools import Rollout
from libs.fleet.state import FleetState
from libs.fleet.status import EventLine
from libs.kube.authors import Author
from libs.kube.views import Metadata
from services.telemetry.cluster.page import fleet_page
from services.telemetry.exposition import NodeSamples
from tests.builders.fleet import written
from tests.unit.ctl.test_frames import MANY, TWELVE

NOW: Final = 1_800_000_000.0
TARGET: Final = "2" * 32
SIZE: Final = {"width": 80, "height": 24}


def metadata(
    name: str, state: str = "upgrade-done", *, pool: str = "gpus", **changes: Any
) -> Metadata:
    record = NodeRecord(
        node_uid=name, epoch=1, token=1, pool=pool, since=NOW - 60, deadline=NOW + 60
    )
    return replace(
        Metadata(
            name=name,
            uid=name,
            labels={STATE_LABEL: state} if state else {},
            annotations=written(record),
        ),
        **changes,
    )


def with_counts(counts: Counts) -> Rollout:
    return replace(rollout(), status=replace(rollout().status, counts=counts))


def rollout(name: str = "gpus", **status: Any) -> Rollout:
    counts = Counts(total=2, limit=1)
    made = RolloutStatus(version="580.95.05", target=TARGET, counts=counts, **status)
    return Rollout(metadata=Metadata(name=name, uid=name, resource_version="1"), status=made)


def event(body: EventBody, node: str = "node-1", *, at: float = NOW, message: str = "it") -> Event:
    return Event.of(body, id=f"{at}", at=at, writer=Writer.SCHEDULER, message=message, node=node)


class Fleet(FleetState):
    """The state with the events that are listed of it, and what a frame shows of both."""

    def __init__(self, pool: str = "") -> None:
        super().__init__(pool=pool)
        self.listed = ListedEvents(self)
        self.rollout_changed(None, rollout())

    def watched(self) -> Watched:
        return Watched(
            address="https://api",
            pools=self.pools_with_waits(),
            nodes=self.nodes(),
            events=tuple(self.listed.lines),
            sources=(),
        )


JOBS: Final = WaitEvent(
    pool="gpus", code=WaitCode.JOBS, detail=f"a pod of {TARGET}", since=NOW - 5, who="its owner"
)


def test_nodes_are_in_the_order_of_their_numbers() -> None:
    state = Fleet()
    for name in ("node-10", "node-2", "a-1", "node-1"):
        state.node_changed(None, metadata(name))
    assert [node.name for node in state.nodes()] == [
        "a-1",
        "node-1",
        "node-2",
        "node-10",
    ]
    state.node_changed(metadata("node-2"), None)
    assert [node.name for node in state.nodes()] == ["a-1", "node-1", "node-10"]


def test_a_done_node_that_is_cordoned_is_marked_until_it_is_uncordoned() -> None:
    state = Fleet()
    state.cordon_changed("node-6", cordoned=True)  # heard of before the node
    state.node_changed(None, metadata("node-6"))
    state.node_changed(None, metadata("node-7"))

    def shown(layout: Layout) -> list[str]:
        screen = Screen(selected="node-7", layout=layout)
        return [text_of(each) for each in frame(state.watched(), screen, now=NOW, **SIZE).lines]

    def rows() -> list[str]:
        return [each.split()[-1] for each in shown(Layout.ROWS) if each.startswith(("  n", "> n"))]

    def taken(name: str) -> Metadata:
        return metadata(name, "validation-required", annotations={LEASE_ANNOTATION: "{}"})

    assert rows() == ["cordoned", "min"]
    assert {"c 1 cordoned  · 1 done", "c·"} <= {each.rstrip() for each in shown(Layout.MAP)}
    state.node_changed(metadata("node-6"), taken("node-6"))
    assert "cordoned" not in " ".join(shown(Layout.ROWS))
    state.node_changed(taken("node-6"), metadata("node-6"))
    assert rows() == ["cordoned", "min"]
    state.cordon_changed("node-6", cordoned=False)
    assert rows() == ["min", "min"]


def test_a_wait_is_known_until_it_ends_whether_it_or_the_node_is_heard_of_first() -> None:
    state = Fleet()
    state.listed.event_received(event(JOBS))
    state.node_changed(None, metadata("node-1", "wait-for-jobs-required"))
    watched = state.watched()
    (node,) = watched.nodes
    assert node.wait is not None
    assert (node.wait.code, node.wait.detail) == ("jobs", "a pod of 580.95.05")
    assert node.deadline == NOW + 60
    assert watched.pools[0].waits == {"jobs": 1}
    state.listed.event_received(event(WaitEvent(pool="gpus")))
    watched = state.watched()
    assert watched.nodes[0].wait is None
    assert watched.pools[0].waits == {}


def test_skipped_nodes_are_counted_apart_from_those_that_wait() -> None:
    def skipped(node: str) -> Event:
        wait = WaitEvent(
            pool="gpus", code=WaitCode.SKIPPED, detail="it is cordoned", since=NOW, who="alice"
        )
        return event(wait, node)

    state = Fleet()
    labels = {SKIP_LABEL: "true", STATE_LABEL: "upgrade-required"}
    state.node_changed(None, metadata("labelled", labels=labels))
    state.node_changed(None, metadata("cordoned", "upgrade-required"))
    state.node_changed(None, metadata("node-1", "wait-for-jobs-required"))
    for message in (skipped("labelled"), skipped("cordoned"), event(JOBS)):
        state.listed.event_received(message)
    counts = Counts(total=3, limit=1, skipped=2, excluded=1)
    state.rollout_changed(None, with_counts(counts))
    watched = state.watched()
    doings = {node.name: node.doing for node in watched.nodes}
    in_flight = {"node-1": Doing.IN_FLIGHT}
    assert doings == {"labelled": Doing.SKIPPED, "cordoned": Doing.SKIPPED, **in_flight}
    assert watched.pools[0].waits == {"jobs": 1}
    lines = [text_of(line) for line in frame(watched, Screen(), now=NOW, **SIZE).lines]
    assert any("waits: 1 jobs; left out: 2 skipped" in line for line in lines), lines


def test_who_stopped_a_pool_has_room_beside_its_budget() -> None:
    because = "Rollout gpus is paused by alice (spec.brake: Pause): bad driver"
    author = Author(name="alice", reason="bad driver")
    paused = replace(
        TWELVE.pools[0], name="gpus", brake="Pause", because=because, brake_set=author, waits={}
    )
    shown = frame(replace(TWELVE, pools=[paused]), Screen(), now=NOW, **SIZE)
    first, second = [text_of(line).rstrip() for line in shown.lines[1:3]]
    assert "  Proving  Pause" in first
    assert second.endswith("allowed   set by alice: bad driver")


def test_commands_are_shown_at_their_node_and_not_listed() -> None:
    state = Fleet()
    state.node_changed(None, metadata("node-1", "pod-restart-required"))
    started = CommandEvent(epoch=1, token=1, op=1, command="swap", phase="started")
    state.listed.event_received(event(started))
    watched = state.watched()
    command = LastCommand("change the driver (begun)", Writer.SCHEDULER, NOW)
    assert watched.nodes[0].command == command
    assert watched.events == ()


def test_plans_that_were_asked_for_ends_of_waits_and_waits_of_pools_are_not_listed() -> None:
    state = Fleet()
    state.listed.event_received(event(JOBS, at=1.0))
    state.listed.event_received(event(WaitEvent(pool="gpus"), at=2.0))
    frozen = WaitEvent(pool="gpus", code=WaitCode.FROZEN, detail="gpus is frozen", since=NOW)
    state.listed.event_received(event(frozen, at=2.5))
    plan = PlanEvent(pool="gpus", target=TARGET, plan="p")
    state.listed.event_received(event(plan, node="", at=3.0))
    assert [each.at for each in state.watched().events] == [1.0]


def test_events_are_in_the_order_of_their_times_and_forgotten_when_read_anew() -> None:
    state = Fleet()
    state.node_changed(None, metadata("node-1"))
    step = StepEvent(pool="gpus", token=1, before="", after="")
    for at in (5.0, 1.0, 9.0, 3.0):
        state.listed.event_received(event(step, at=at))
    assert [each.at for each in state.watched().events] == [1.0, 3.0, 5.0, 9.0]
    for at in range(10, 10 + KEPT_EVENTS):
        state.listed.event_received(event(step, at=float(at)))
    assert len(state.watched().events) == KEPT_EVENTS
    state.listed.event_received(event(JOBS))
    state.listed.events_begin()
    watched = state.watched()
    assert watched.events == ()
    assert watched.nodes[0].wait is None


def test_an_event_that_cannot_be_read_changes_nothing() -> None:
    state = Fleet()
    state.node_changed(None, metadata("node-1"))
    before = state.watched()
    state.listed.event_received(replace(event(JOBS), body=msgspec.Raw(b'{"code": 7}')))
    assert not state.is_changed
    assert state.watched() == before


def test_one_pool_has_its_own_nodes_alone() -> None:
    state = Fleet(pool="gpus")
    state.rollout_changed(None, rollout("other"))
    state.node_changed(None, metadata("node-1"))
    state.node_changed(None, metadata("node-2", pool="other"))
    watched = state.watched()
    assert [pool.name for pool in watched.pools] == ["gpus"]
    assert [node.name for node in watched.nodes] == ["node-1"]
    state.rollout_changed(rollout(), None)
    assert state.watched().pools == []


def test_only_a_change_asks_for_a_new_frame() -> None:
    state = Fleet()
    state.watched()
    assert not state.is_changed
    state.listed.add(EventLine(at=NOW, writer="", node="", kind="", message=""))
    assert state.is_changed
    state.watched()
    state.gpus_measured({"node-1": GpuUse(1, 8)})
    assert state.is_changed


def test_use_of_gpus_is_not_shown_from_before_their_driver_was_unloaded() -> None:
    state = Fleet()

    def seen(upgrade: str, *, measured: bool = False, **changes: Any) -> GpuUse | None:
        record = NodeRecord(
            node_uid="node-1", epoch=1, token=1, pool="gpus", started=True, state=upgrade, **changes
        )
        state.node_changed(None, metadata("node-1", upgrade, annotations=written(record)))
        if measured:
            state.gpus_measured({"node-1": GpuUse(4, 8, 68.0)})
        return state.nodes()[0].use

    assert seen("pod-deletion-required", measured=True) == GpuUse(4, 8, 68.0)
    assert seen("pod-restart-required") is None
    assert seen("pod-restart-required", measured=True) is None, "the page may be older"
    assert seen("validation-required") is None
    assert seen("validation-required", measured=True) == GpuUse(4, 8, 68.0)
    cause = "driver-start: the driver container restarted 3 times"
    assert seen("upgrade-failed", cause=cause) is None


# Keys.


def test_bytes_of_a_terminal_are_keys() -> None:
    data = b"q\x1b[A\x1bOB\x1b[5~\x1b[99;5~\x1b\xc3\xa9"
    assert list(keys_of(data)) == ["q", "up", "down", "page-up", "escape", "é"]


def test_arrows_move_among_rows_and_end_at_the_ends() -> None:
    screen = Screen()
    for key, selected in (
        ("down", "node-2"),
        ("j", "node-3"),
        ("k", "node-2"),
        ("G", "node-12"),
        ("down", "node-12"),
        ("g", "node-1"),
        ("up", "node-1"),
    ):
        screen, action = press(key, TWELVE, screen, **SIZE)
        assert (screen.selected, action) == (selected, None), key


def test_arrows_move_on_the_map_by_a_node_and_by_a_line() -> None:
    screen, _ = press("right", MANY, Screen(), **SIZE)
    assert screen.selected == "node-2"
    screen, _ = press("down", MANY, screen, **SIZE)
    assert screen.selected == f"node-{2 + 4 * 80}"  # four nodes to a letter
    screen, _ = press("h", MANY, screen, **SIZE)
    assert screen.selected == "node-321"
    rows, _ = press("m", MANY, screen, **SIZE)
    assert rows.layout is Layout.ROWS
    rows, _ = press("page-down", MANY, rows, **SIZE)
    assert rows.selected == "node-332"
    assert press("m", MANY, rows, **SIZE)[0].layout is Layout.MAP


@pytest.mark.parametrize(
    ("key", "action"),
    [
        ("q", Action.QUIT),
        ("w", Action.WHY),
        ("\r", Action.WHY),
        ("p", Action.PAUSE),
        ("r", Action.RESUME),
        ("l", Action.RELEASE),
        ("x", None),
    ],
)
def test_a_key_asks_for_an_action_and_ends_the_message_of_the_last(
    key: str, action: Action | None
) -> None:
    screen, asked = press(key, TWELVE, Screen(message="gpus is paused"), **SIZE)
    assert (screen.message, asked) == ("", action)


@pytest.mark.parametrize("key", ["n", "q", "Y", "\r", "escape", " "])
def test_only_y_affirms_a_question(key: str) -> None:
    asked = Screen(panel=Panel(title="?", lines=("",), asks=True))
    expected = None if key == " " else Action.DENY  # scrolls
    assert press(key, TWELVE, asked, **SIZE)[1] is expected
    screen, action = press("y", TWELVE, asked, **SIZE)
    assert (screen.panel, action) == (None, Action.CONFIRM)


def test_a_panel_scrolls_to_its_last_line_and_is_closed() -> None:
    text = "a line that is longer than the terminal is wide, which makes two of it in this panel "
    screen = Screen(panel=Panel(title="why", lines=(text * 2,) * 10))
    for _ in range(99):
        screen, action = press("down", TWELVE, screen, **SIZE)
        assert action is None
    assert screen.panel is not None
    end = screen.panel.top
    assert end > 10  # folded lines are counted
    screen, _ = press("page-down", TWELVE, screen, **SIZE)
    assert screen.panel is not None
    assert screen.panel.top == end
    assert press("q", TWELVE, screen, **SIZE) == (Screen(), None)


def test_a_newer_answer_takes_the_place_of_one_about_the_same_node_alone() -> None:
    answer = Panel(
        title="why node-1, as of 11:00:03 UTC", lines=("newer",), node="node-1", opened=1.0
    )
    older = msgspec.structs.replace(answer, lines=("older",) * 9, top=4)
    shown = with_newer_answer(Screen(panel=older), answer)
    assert shown.panel == msgspec.structs.replace(answer, top=4)
    others = (
        None,
        Panel(title="?", lines=(), asks=True),
        msgspec.structs.replace(older, node="node-2"),
        msgspec.structs.replace(older, opened=2.0),
    )
    for panel in others:
        assert with_newer_answer(Screen(panel=panel), answer) == Screen(panel=panel)


def test_help_lists_the_keys_and_the_sources() -> None:
    screen, _ = press("?", TWELVE, Screen(), **SIZE)
    assert screen.panel is not None
    text = "\n".join(screen.panel.lines)
    assert "pause: start no more nodes" in text
    assert "waits: from events: NATS does not answer" in text


def test_a_caller_with_a_fleet_of_its_own_tells_how_to_reach_it() -> None:
    guide = Guide(title="other shell: . /tmp/x/env", help=("sluice status",))
    guided = replace(TWELVE, guide=guide)
    screen, _ = press("?", guided, Screen(), **SIZE)
    assert screen.panel is not None
    assert screen.panel.lines[:2] == ("sluice status", "")
    assert "pause: start no more nodes" in "\n".join(screen.panel.lines)

    def title(width: int) -> str:
        return text_of(frame(guided, Screen(), now=NOW, width=width, height=24).lines[0])

    start = "Sluice  12 nodes  other shell: . /tmp/x/env"
    assert title(60).startswith(f"{start}  ")
    assert title(60).endswith(" UTC")
    assert title(len(start) + 12) == title(len(start)) == start, "the line can be typed"


def test_a_write_is_for_the_only_pool_or_that_of_the_selected_node() -> None:
    state = Fleet()
    state.node_changed(None, metadata("node-1"))
    state.node_changed(None, metadata("node-2", pool="other"))
    write = planned_write(Action.PAUSE, state.watched(), Screen(), state, person="alice")
    assert (write.pool, write.planned.risk) == ("gpus", "")
    state.rollout_changed(None, rollout("other"))
    watched = state.watched()
    write = planned_write(Action.PAUSE, watched, Screen(selected="node-2"), state, person="alice")
    assert write.pool == "other"
    state.node_changed(None, replace(metadata("node-0"), annotations={}))
    with pytest.raises(Failure, match="select a node of the pool"):
        planned_write(Action.PAUSE, state.watched(), Screen(), state, person="alice")


# Telemetry.


@pytest.mark.parametrize("size", [1, 100, 1_000_000])
def test_busy_and_hot_gpus_are_read_from_the_page_of_the_fleet_in_chunks(size: int) -> None:
    nodes = [
        NodeSamples(
            node=node,
            driver_version="580.95.05",
            samples=tuple(
                GpuSample(
                    uuid=f"GPU-{node}-{index}",
                    index=index,
                    pci=f"00000000:{index:02X}:00.0",
                    temperature_c=40 + index,
                    gpu_utilization=None if node == "quiet.example" else index,
                )
                for index in range(4)
            ),
        )
        for node in ("node-1", "quiet.example")
    ]
    page = fleet_page(nodes, hostname_label="Hostname")
    reader = PageReader()
    for start in range(0, len(page), size):
        reader.feed(page[start : start + size])
    assert reader.gpus() == {"node-1": GpuUse(3, 4, 43.0), "quiet.example": GpuUse(0, 4, 43.0)}


@pytest.mark.parametrize("url", ["localhost:9400", "ftp://host", "http://"])
def test_an_address_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(Failure, match="no address"):
        require_address(url)
