"""The time at which a node is revisited."""

import pytest

from libs.contracts.waits import WaitCode
from libs.rollout.decision import NodeOutcome, Step, Wait
from libs.rollout.outcomes import WakeQueue, next_wake
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import NOW, component, node


def beats(silent_at: float) -> NodeView:
    return node(components={"driver": component(silent_at=silent_at)})


def waits(until: float | None) -> Wait:
    return Wait(code=WaitCode.JOBS, detail="a job", since=NOW, until=until)


def steps(wake_at: float | None, until: float | None = None) -> Step:
    wait = None if until is None else waits(until)
    return Step(actions=(), because="so", wait=wait, wake_at=wake_at)


def test_a_wake_up_comes_once_and_not_early() -> None:
    wakes = WakeQueue()
    for name, at in (("a", 9.0), ("b", 5.0), ("c", 5.0)):
        wakes.put(name, at)
    assert (wakes.pop_due(4.9), wakes.next_at()) == ([], 5.0)
    assert (wakes.pop_due(5.0), wakes.next_at()) == (["b", "c"], 9.0)
    assert (wakes.pop_due(99.0), wakes.pop_due(99.0), wakes.next_at()) == (["a"], [], None)


def test_the_last_wake_up_set_for_a_node_counts() -> None:
    wakes = WakeQueue()
    for at in (5.0, 9.0, 9.0, 7.0):
        wakes.put("n", at)
    assert (wakes.next_at(), wakes.pop_due(5.0), wakes.pop_due(7.0), wakes.pop_due(9.0)) == (
        7.0,
        [],
        ["n"],
        [],
    )
    wakes.put("n", 12.0)
    wakes.put("n", None)
    wakes.put("n", None)
    assert (wakes.next_at(), wakes.pop_due(12.0)) == (None, [])


@pytest.mark.parametrize(
    ("outcome", "due", "expected"),
    [
        (None, None, None),
        (None, NOW + 3, NOW + 3),
        (None, NOW, None),
        (waits(None), None, NOW + 60),
        (waits(None), NOW, NOW + 60),
        (waits(None), NOW + 3, NOW + 3),
        (waits(None), NOW + 99, NOW + 60),
        (waits(NOW + 3), None, NOW + 3),
        (waits(NOW), None, NOW + 60),
        (waits(NOW + 99), None, NOW + 60),
        (steps(None), None, NOW + 60),
        (steps(NOW + 3), None, NOW + 3),
        (steps(NOW + 5, NOW + 3), None, NOW + 3),
        (steps(NOW + 3, NOW + 5), NOW + 4, NOW + 3),
    ],
)
def test_the_first_moment_ahead_counts(
    outcome: NodeOutcome, due: float | None, expected: float | None
) -> None:
    assert next_wake(beats(NOW + 60), outcome, due, NOW) == expected


@pytest.mark.parametrize("silent_at", [NOW - 5, NOW])
def test_a_silence_that_has_begun_wakes_nothing(silent_at: float) -> None:
    assert next_wake(beats(silent_at), waits(None), None, NOW) is None
