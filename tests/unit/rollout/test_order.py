"""The ranking of candidates (docs/states.md#d-4), and the structures that keep it."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.node import NodeRecord, Operation
from libs.contracts.reports import PodUse, Usage
from libs.rollout.decision import Candidate
from libs.rollout.pool.queues import Rank, RankedNodes, rank
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import node, record


def candidate(*, outside: bool = False) -> Candidate:
    return Candidate(operation=Operation.UPGRADE, target="t", label="l", outside=outside)


def uses(name: str, *pods: int) -> NodeView:
    use = Usage(pods=tuple(PodUse(pod_uid=f"{name}-{n}", gpus=gpus) for n, gpus in enumerate(pods)))
    return node(name, usage=use)


def runs(name: str, version: str) -> NodeView:
    return node(name, loaded=LoadedDriver(version=version))


def before(first: NodeView, second: NodeView) -> bool:
    return rank(first, candidate()) < rank(second, candidate())


def test_the_ranking_order() -> None:
    released: NodeRecord = record("b", back_off_seconds=600.0)
    in_order = [
        (uses("z", 8, 8, 8), candidate(outside=True)),
        (runs("y", "550.9.1"), candidate()),
        (runs("x", "550.10.1"), candidate()),
        (node("b1", loaded=LoadedDriver(version="580.1")), candidate()),
        (node("b2", loaded=LoadedDriver(version="580.1")), candidate()),
        (node("w", usage=Usage(host_processes=1)), candidate()),
        (uses("v", 8), candidate()),
        (uses("u", 1, 1), candidate()),
        (replace(node("b"), record=released), candidate()),
        (node("a", upgrade_last=True), candidate(outside=True)),
        (node("a", upgrade_last=True), candidate()),
    ]
    ranks = [rank(*item) for item in in_order]
    assert ranks == sorted(ranks)


def test_unknown_usage_ranks_as_busy() -> None:
    assert before(node("z"), node("a", usage=None))


def test_a_finished_back_off_does_not_lower_the_rank() -> None:
    again: NodeRecord = record("a", back_off_seconds=0.0)
    assert before(replace(node("a"), record=again), node("b"))


def rank_of(number: int, name: int) -> Rank:
    return Rank(False, False, True, False, number, (), f"n{name}")


changes = st.lists(st.tuples(st.integers(0, 8), st.none() | st.integers(0, 5)), max_size=60)


@given(changes, st.lists(st.booleans(), max_size=60))
def test_ranked_nodes_stay_sorted(changed: list[tuple[int, int | None]], looks: list[bool]) -> None:
    line, known = RankedNodes(), dict[str, Rank]()
    for at, (name, number) in enumerate(changed):
        if number is not None:
            known[f"n{name}"] = rank_of(number, name)
            line.put(known[f"n{name}"])
        elif f"n{name}" in known:
            del known[f"n{name}"]
            line.drop(f"n{name}")
        if looks[at : at + 1] == [True]:
            assert list(line) == sorted(known.values())
    assert list(line) == sorted(known.values())
    assert (len(line), sorted(line.names())) == (len(known), sorted(known))
