"""The plan of a run: which tests a worker gets, and when a ground's turn comes."""

from collections import deque

from tests.run.plan import GroundKind, Plan, Unit

NODES = Unit("real nodes", (0, 1, 2), GroundKind.NODES)
GUEST = Unit("guest", (3, 4), GroundKind.GUEST)
DOCKER = Unit("Docker", (5,), GroundKind.DOCKER)
FILE = Unit("tests/test_a.py", (6, 7))


def plan(*units: Unit, heavy_at_once: int = 1) -> Plan:
    return Plan(deque(units), heavy_at_once)


def test_a_heavy_ground_waits_until_the_one_before_is_over() -> None:
    these = plan(NODES, GUEST, FILE)
    assert these.next(1) == NODES
    assert these.next(2) == FILE
    assert these.next(2) is None
    assert these.next(1) == GUEST


def test_a_larger_machine_bears_more_heavy_grounds_at_once() -> None:
    these = plan(NODES, GUEST, FILE, heavy_at_once=2)
    assert [these.next(worker) for worker in (1, 2, 3)] == [NODES, GUEST, FILE]


def test_a_light_ground_runs_beside_a_heavy_one() -> None:
    these = plan(NODES, GUEST, DOCKER)
    assert [these.next(worker) for worker in (1, 2)] == [NODES, DOCKER]


def test_another_worker_does_what_is_left_of_a_unit() -> None:
    these = plan(NODES, FILE)
    these.next(1)
    these.give_back(1, done=2)
    assert these.next(2) == Unit("real nodes", (2,), GroundKind.NODES)


def test_nothing_is_left_of_a_unit_whose_last_test_ended_its_worker() -> None:
    these = plan(NODES)
    these.next(1)
    these.give_back(1, done=3)
    assert these.next(2) is None
