"""I6: the revisions on which a lowering write was decided."""

import msgspec
import pytest

from libs.contracts.node import Operation
from tests.unit.audit.builders import JournalBuilder, messages, violations_of


def i6_violations(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(max_unavailable=2, failure_threshold=100), "I6")


@pytest.mark.parametrize("seen", [dict[str, str](), {"pods": "101"}, {"nodes": ""}])
def test_a_lowering_write_names_the_revision_of_the_nodes(seen: dict[str, str]) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1", seen=seen)
    assert i6_violations(builder)[0] == (
        "n1 was made unavailable by a write whose record names no revision of the Nodes"
    )


@pytest.mark.parametrize(("after", "behind"), [(90, False), (91, True)])
def test_a_source_may_lag_up_to_the_limit(after: int, behind: bool) -> None:
    builder = JournalBuilder("n1", "n2")
    seen = {"nodes": str(builder.revision)}
    builder.advance(1000)
    builder.cordon("n2")
    builder.advance(after)
    builder.take_lease("n1", seen=seen)
    expected = (
        "n1 was made unavailable on the stale revision 102 of nodes: revision 103 of a Node was"
        " 91 s old"
    )
    assert i6_violations(builder) == ([expected] if behind else [])


def test_an_unchanged_source_is_never_stale() -> None:
    builder = JournalBuilder("n1", "n2")
    builder.pod("p1", namespace="gpu")
    seen = {"nodes": "102", "pods": "103", "daemonsets": "7"}
    builder.advance(100_000)
    builder.take_lease("n1", seen=seen)
    assert violations_of(builder.journal()) == []


@pytest.mark.parametrize(
    ("source", "behind"),
    [("pods", True), ("pods/gpu", False), ("pods/web", True), ("policies", True), ("moons", False)],
)
def test_sources_are_judged_by_name_and_namespace(source: str, behind: bool) -> None:
    builder = JournalBuilder("n1", "n2")
    seen = {"nodes": "104", source: str(builder.revision)}
    builder.pod("p1", namespace="web")
    builder.write("ClusterPolicy", "main", lambda _: None, manager="kubectl")
    builder.advance(91)
    builder.take_lease("n1", seen=seen)
    assert bool(i6_violations(builder)) is behind


def test_future_revisions_and_malformed_ones_are_violations() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1", seen={"nodes": "102", "pods": "soon"})
    assert i6_violations(builder) == [
        "n1 was made unavailable on 'soon' of pods, which is no revision number",
        "n1 was made unavailable on revision 102 of nodes, which did not exist yet",
    ]


def test_a_write_that_does_not_lower_capacity_needs_no_revisions() -> None:
    builder = JournalBuilder("n1", "n2", "n3")
    builder.take_lease("n1", operation=Operation.BRING_UP, cordon=False, seen={})
    builder.cordon("n2")
    builder.take_lease("n2", seen={})
    builder.take_lease("n3", operation=Operation.VALIDATE, cordon=False, seen={})
    assert i6_violations(builder) == []


def test_a_revision_of_other_digits_is_malformed() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1", seen={"nodes": "\N{SUPERSCRIPT TWO}"})
    unsaid, unread = i6_violations(builder)
    assert "names no revision of the Nodes" in unsaid
    assert unread == (
        "n1 was made unavailable on '\N{SUPERSCRIPT TWO}' of nodes, which is no revision number"
    )


def test_a_write_without_a_revision_is_not_compared() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.revisions[-1] = msgspec.structs.replace(builder.revisions[-1], revision=0)
    assert i6_violations(builder) == []


@pytest.mark.parametrize(("source", "late"), [("policies", "ClusterPolicy"), ("pods", "Pod")])
def test_each_source_covers_its_kinds(source: str, late: str) -> None:
    builder = JournalBuilder("n1")
    seen = {"nodes": str(builder.revision), source: str(builder.revision)}
    builder.write(late, "x", lambda whole: None, manager="kubectl")
    builder.advance(91)
    builder.take_lease("n1", seen=seen)
    assert i6_violations(builder) == [
        (
            f"n1 was made unavailable on the stale revision 101 of {source}: revision 102 of a"
            f" {late} was 91 s old"
        )
    ]


def test_a_rollout_does_not_belong_to_the_policies_source() -> None:
    builder = JournalBuilder("n1")
    seen = {"nodes": str(builder.revision), "policies": str(builder.revision)}
    builder.release(0)
    builder.advance(91)
    builder.take_lease("n1", seen=seen)
    assert i6_violations(builder) == []
