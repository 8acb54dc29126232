"""Frames of the live view as text, at the sizes of real terminals.

`python -m tests.unit.ctl.test_frames` writes them anew, to be looked at before they are committed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import asdict, replace
from rich.style import Style

from libs.contracts.queries import WaitReason
from libs.contracts.rollout import BY_CHECKED_BRAKE, Brake, Counts, braked
from libs.contracts.waits import RESOLVED_BY, WaitCode
from libs.ctl.views.frame.compose import Frame, frame, listed_room
from libs.ctl.views.frame.nodes import short_who, step_bar
from libs.ctl.views.frame.text import Span, bar, cut, cut_middle, fit, fold, pad, text_of, width_of
from libs.ctl.watch.screen import Layout, Panel, Screen, Watched, arrange
from libs.fleet.node import Doing, FollowedNode, GpuUse, LastCommand, doing_of
from libs.fleet.pools import Pool
from libs.fleet.status import EventLine, Source

NOW: Final = 1_800_000_000.0
FOLDER: Final = Path(__file__).parent / "frames"
STATES: Final = (
    "upgrade-done",
    "validation-required",
    "upgrade-failed",
    "wait-for-jobs-required",
    "upgrade-required",
    "",
)
JOBS: Final = WaitReason(
    code=WaitCode.JOBS,
    detail="pod team-a/train-7 of job train uses 4 GPUs of the node",
    since=NOW - 90,
    until=NOW + 600,
    who="the owners of the jobs",
)
BUDGET: Final = WaitReason(
    code=WaitCode.BUDGET,
    detail="2 of at most 2 nodes (maxUnavailable) are unavailable: node-2 (in flight)",
    since=NOW - 5,
    who="itself; the author of the policy, by raising the limits",
)
SIZES: Final = ((80, 24), (110, 30), (160, 48), (40, 24))


def node(number: int, state: str, *, gpus: bool = False, **changes: Any) -> FollowedNode:
    in_flight = state in ("validation-required", "wait-for-jobs-required")
    waits = {"wait-for-jobs-required": JOBS, "upgrade-required": BUDGET}
    command = LastCommand("validate the driver (begun)", "validator", NOW - 12)
    made = FollowedNode(
        name=f"node-{number}",
        pool="gpus",
        state=state,
        driver="570.86.15",
        since=NOW - 45 * (number % 40),
        attempt=2 if state == "upgrade-failed" else 1,
        in_flight=in_flight,
        skipped=False,
        cause="the driver did not load \x1b[2J" if state == "upgrade-failed" else "",
        doing=Doing.DONE,
        deadline=NOW + 300 if in_flight else None,
        wait=waits.get(state),
        command=command if state == "validation-required" else None,
        use=GpuUse(number % 9, 8, 41.0 + number) if gpus else None,
    )
    changed = replace(made, **changes)
    return replace(changed, doing=doing_of(changed, changed.wait))


def pool(**changes: Any) -> Pool:
    counts = Counts(total=12, done=2, in_flight=4, failed=2, unavailable=2, limit=3)
    return replace(
        Pool(
            name="clusterpolicy-cluster-policy",
            version="580.95.05",
            target="2" * 32,
            phase="Proving",
            because="",
            brake="None",
            counts=asdict(counts),
            waits={"jobs": 2, "budget": 4},
        ),
        **changes,
    )


def watched(states: Sequence[str], *, gpus: bool = False, **changes: Any) -> Watched:
    events = [
        EventLine(
            at=NOW - 60 + number,
            writer="scheduler",
            node=f"node-{number}",
            kind="step",
            message=f"node-{number}: wait-for-jobs-required after cordon-required \x1b[31m",
        )
        for number in range(12)
    ]
    fleet = Watched(
        address="https://10.0.0.1:6443",
        pools=[pool()],
        nodes=[node(number, state, gpus=gpus) for number, state in enumerate(states, 1)],
        is_measured=gpus,
        events=events,
        sources=[
            Source(name="Kubernetes", gives="Kubernetes", age=0.3),
            Source(name="events", gives="waits", age=75.0, problem="NATS does not answer"),
        ],
    )
    return replace(fleet, **changes)


TWELVE: Final = watched(STATES * 2)
MEASURED: Final = watched(STATES * 2, gpus=True)
MANY: Final = watched((*("upgrade-done",) * 180, *STATES * 3) * 10 + STATES * 3 + STATES * 1)
WHY: Final = Panel(
    title="why node-4",
    lines=("node-4 waits: jobs", f"  because: {JOBS.detail}", *(f"  step {n}" for n in range(20))),
)
QUESTION: Final = Panel(
    title="resume gpus?",
    lines=("", "Nodes of gpus that are not done are drained and upgraded, within the budget."),
    asks=True,
)
CASES: Final = {
    "rows": (TWELVE, Screen(selected="node-4")),
    "measured": (MEASURED, Screen(selected="node-4")),
    "map": (MANY, Screen(selected="node-184")),
    "cordoned-map": (
        replace(TWELVE, nodes=[node(1, "upgrade-done", cordoned=True), *TWELVE.nodes[1:]]),
        Screen(selected="node-1", layout=Layout.MAP),
    ),
    "cordoned-rows": (
        replace(TWELVE, nodes=[node(1, "upgrade-done", cordoned=True), *TWELVE.nodes[1:]]),
        Screen(selected="node-1"),
    ),
    "why": (TWELVE, Screen(selected="node-4", panel=WHY)),
    "question": (TWELVE, Screen(panel=QUESTION)),
    "paged": (MANY, Screen(selected="node-1000", layout=Layout.ROWS, message="gpus is paused")),
    "empty": (watched((), pools=[], events=[]), Screen()),
    "halted": (
        watched(
            STATES, pools=[pool(phase="Halted", because="validation failed", brake="Pause")] * 9
        ),
        Screen(),
    ),
}


def test_before_anything_is_read_nothing_is_said_to_be_missing() -> None:
    fleet = watched((), pools=[], sources=[Source(name="Kubernetes", gives="Kubernetes")])
    shown = text(frame(fleet, Screen(), now=NOW, width=80, height=24))
    assert "Reading nodes and pools …" in shown
    assert "no pool" not in shown


def drawn(case: str, width: int, height: int) -> Frame:
    fleet, screen = CASES[case]
    room = listed_room(fleet, width=width, height=height)
    placed = arrange(fleet.nodes, screen, room=room)
    return frame(fleet, placed, now=NOW, width=width, height=height)


def text(of: Frame) -> str:
    return "".join(f"{text_of(line).rstrip()}\n" for line in of.lines)


def file_of(case: str, width: int, height: int) -> Path:
    return FOLDER / f"{case}-{width}x{height}.txt"


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("case", CASES)
def test_a_frame_is_as_it_was_looked_at(case: str, width: int, height: int) -> None:
    assert text(drawn(case, width, height)) == file_of(case, width, height).read_text()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("height", [1, 5, 8, 12, 17, 24, 60])
@pytest.mark.parametrize("width", [20, 33, 40, 79, 80, 121, 300])
def test_a_frame_fills_each_terminal_and_passes_no_edge(case: str, width: int, height: int) -> None:
    lines = drawn(case, width, height).lines
    assert len(lines) == height
    assert max(sum(width_of(span.text) for span in line) for line in lines) <= width


@pytest.mark.parametrize("case", CASES)
def test_text_of_nodes_does_not_control_the_terminal(case: str) -> None:
    assert "\x1b" not in text(drawn(case, 160, 48))


@pytest.mark.parametrize("width", [80, 110, 160])
@pytest.mark.parametrize("case", ["rows", "measured"])
def test_each_row_says_who_can_end_its_wait_below_the_budget_as_a_bar(
    case: str, width: int
) -> None:
    shown = text(drawn(case, width, 24)).splitlines()
    assert "unavailable ████████░░░░ 2 of 3 allowed   waits: 4 budget, 2 jobs" in shown[2]
    assert "ENDED BY" in shown[3]
    assert "jobs: pod team" in shown[7]
    assert shown[7].endswith("  owners of the jobs")
    assert shown[8].endswith("  itself")
    assert "  ended by: the owners of the jobs" in shown


@pytest.mark.parametrize(
    ("who", "short"),
    [
        ("the owner of the disruption budget", "owner of the disruption budget"),
        ("an administrator, by spec.brake of the Rollout", "administrator"),
        ("itself; if it lasts, the owners of the pods", "itself"),
        (
            "an administrator of the agent that the details name",
            "administrator of the agent",
        ),
        ("", ""),
    ],
)
def test_a_row_says_who_without_how(who: str, short: str) -> None:
    assert short_who(who) == short


@pytest.mark.parametrize(
    ("code", "detail", "cell", "line"),
    [
        (
            "frozen",
            braked("gpus", Brake.FREEZE, by="alice", reason="no storage"),
            "frozen by alice: no s…",
            "frozen by alice for 5 s: no storage",
        ),
        ("paused", braked("gpus", Brake.PAUSE), "paused", "paused for 5 s"),
        ("skipped", "bob has the node", "skipped: bob has", "skipped for 5 s: bob has the node"),
        ("budget", "2 of 2", "budget: 2 of 2", "waits for budget for 5 s: 2 of 2"),
    ],
)
def test_a_node_waits_for_what_is_awaited_and_is_what_somebody_made_it(
    code: str, detail: str, cell: str, line: str
) -> None:
    wait = WaitReason(code=WaitCode(code), detail=detail, since=NOW - 5)
    held = replace(node(1, "upgrade-required"), wait=wait)
    shown = text(frame(watched((), nodes=[held]), Screen(), now=NOW, width=110, height=24))
    row = next(each for each in shown.splitlines() if each.startswith("> node-1"))
    assert cell in row
    assert f"  {line}" in shown.splitlines()


@pytest.mark.parametrize(
    ("who", "told"),
    [
        (RESOLVED_BY[WaitCode.FROZEN], "an administrator, by key r"),
        (
            RESOLVED_BY[WaitCode.PAUSED],
            "an administrator, by key r, or by autoUpgrade of the policy",
        ),
        (BY_CHECKED_BRAKE, "by key r"),
        (
            RESOLVED_BY[WaitCode.HALTED],
            "an administrator, by key l; the author of the policy, by another driver",
        ),
        ("the owners of the jobs", "the owners of the jobs"),
    ],
)
def test_who_ends_a_brake_or_a_halt_is_told_with_the_key_for_it(who: str, told: str) -> None:
    held = replace(node(1, "upgrade-required"), wait=replace(BUDGET, who=who))
    shown = text(frame(watched((), nodes=[held]), Screen(), now=NOW, width=110, height=24))
    assert f"  ended by: {told}" in shown.splitlines()


@pytest.mark.parametrize(
    ("age", "problem", "said"),
    [
        (4.0, "", "Kubernetes: current"),
        (90.0, "", "Kubernetes: current"),
        (150.0, "", "Kubernetes: last confirmed 2 min 30 s ago"),
        (5.0, "it refuses", "Kubernetes: it refuses, last confirmed 5 s ago"),
        (None, "", "Kubernetes: not read yet"),
    ],
)
def test_an_age_is_shown_where_it_is_more_than_usual(
    age: float | None, problem: str, said: str
) -> None:
    source = Source(name="Kubernetes", gives="Kubernetes", age=age, problem=problem)
    shown = frame(watched(STATES, sources=[source]), Screen(), now=NOW, width=80, height=24)
    assert text_of(shown.lines[-2]) == said


def test_styles_are_the_palette_of_the_terminal_without_backgrounds() -> None:
    for case in CASES:
        for line in drawn(case, 160, 48).lines:
            for style in (Style.parse(span.style) for span in line):
                assert style.bgcolor is None
                assert style.color is None or (style.color.number or 0) in range(1, 7)


def test_a_state_that_changes_moves_no_other_line() -> None:
    for fleet, width in ((TWELVE, 80), (MEASURED, 160)):
        nodes = list(fleet.nodes)
        nodes[0] = node(1, "node-maintenance-required")
        changed = replace(fleet, nodes=nodes)
        before = frame(fleet, Screen(), now=NOW, width=width, height=24).lines
        after = frame(changed, Screen(), now=NOW, width=width, height=24).lines
        numbers = [n for n, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        assert numbers[0] == 4  # the row of node-1
        assert all(number > 15 for number in numbers[1:])  # its detail


def test_a_node_keeps_its_place_below_the_map_until_it_is_done() -> None:
    fleet = watched(("upgrade-required", "validation-required", "upgrade-required") * 2)
    first = arrange(fleet.nodes, Screen(), room=3)
    assert first.places == ("node-2", "node-5", "node-1")
    nodes = list(fleet.nodes)
    nodes[1] = node(2, "upgrade-done")
    second = arrange(nodes, first, room=3)
    assert second.places == ("node-3", "node-5", "node-1")
    nodes[5] = node(6, "upgrade-failed")
    third = arrange(nodes, second, room=3)
    assert third.places == ("node-6", "node-5", "node-1")
    wider = arrange(nodes, third, room=5)
    assert wider.places[:3] == third.places
    assert arrange([], third, room=3).places == ("", "", "")


def test_a_text_is_cut_with_a_sign_and_wide_characters_are_two_cells() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"
    assert cut("abcd", 0) == ""
    assert cut("日本語", 4) == "日…"
    assert cut_middle("gpu-node-rack-17", 10) == "gpu…ack-17"
    assert pad("日本", 6, right=True) == "  日本"
    assert "".join(fold("日本語日本語", 5)) == "日本語日本語"
    assert max(map(width_of, fold("日本語日本語 abc", 5))) <= 5
    assert text_of(fit([Span("abc"), Span("def")], 3)) == "ab…"
    assert text_of(fit([Span("abc"), Span("def")], 5)) == "abcd…"
    assert text_of(fit([Span("abc"), Span("")], 3)) == "abc"


def test_a_bar_is_full_only_at_its_end_and_empty_only_at_its_start() -> None:
    assert bar(0.0, 4) == "░░░░"
    assert bar(0.01, 4) == "█░░░"
    assert bar(0.99, 4) == "███░"
    assert bar(1.7, 4) == "████"


def test_the_bar_of_a_node_moves_with_each_step_of_its_upgrade() -> None:
    states = (
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "pod-restart-required",
        "validation-required",
        "uncordon-required",
    )
    bars = [step_bar(node(1, state, in_flight=True)) for state in states]
    assert [bar.count("█") for bar in bars] == [1, 2, 3, 4, 5, 6, 7]
    assert step_bar(node(2, "upgrade-required")) == ""


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in CASES:
        for columns, rows in SIZES:
            file_of(name, columns, rows).write_text(text(drawn(name, columns, rows)))
