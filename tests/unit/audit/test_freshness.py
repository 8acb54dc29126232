"""I6: what a lowering write was decided on."""

import msgspec
import pytest

from libs.contracts.node import Operation
from tests.unit.audit.builders import JournalBuilder, messages, violations_of


def of_i6(story: JournalBuilder) -> list[str]:
    return messages(story.journal(max_unavailable=2, failure_threshold=100), "I6")


@pytest.mark.parametrize("seen", [dict[str, str](), {"pods": "101"}, {"nodes": ""}])
def test_a_write_that_does_not_say_what_it_saw(seen: dict[str, str]) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1", seen=seen)
    assert of_i6(story)[0] == (
        "n1 was made unavailable by a write whose record names no revision of the Nodes"
    )


@pytest.mark.parametrize(("after", "behind"), [(90, False), (91, True)])
def test_a_source_that_was_behind_for_longer_than_the_limit(after: int, behind: bool) -> None:
    story = JournalBuilder("n1", "n2")
    seen = {"nodes": str(story.revision)}
    story.advance(1000)
    story.cordon("n2")
    story.advance(after)
    story.take_lease("n1", seen=seen)
    expected = (
        "n1 was made unavailable on the stale revision 102 of nodes: revision 103 of a Node was"
        " 91 s old"
    )
    assert of_i6(story) == ([expected] if behind else [])


def test_a_source_to_which_nothing_happened_is_as_old_as_it_may_be() -> None:
    story = JournalBuilder("n1", "n2")
    story.pod("p1", namespace="gpu")
    seen = {"nodes": "102", "pods": "103", "daemonsets": "7"}
    story.advance(100_000)
    story.take_lease("n1", seen=seen)
    assert violations_of(story.journal()) == []


@pytest.mark.parametrize(
    ("source", "behind"),
    [("pods", True), ("pods/gpu", False), ("pods/web", True), ("policies", True), ("moons", False)],
)
def test_every_source_by_its_name_and_namespace(source: str, behind: bool) -> None:
    story = JournalBuilder("n1", "n2")
    seen = {"nodes": "104", source: str(story.revision)}
    story.pod("p1", namespace="web")
    story.write("ClusterPolicy", "main", lambda _: None, manager="kubectl")
    story.advance(91)
    story.take_lease("n1", seen=seen)
    assert bool(of_i6(story)) is behind


def test_a_revision_that_was_not_there_yet_and_one_that_is_none() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1", seen={"nodes": "102", "pods": "soon"})
    assert of_i6(story) == [
        "n1 was made unavailable on 'soon' of pods, which is no revision number",
        "n1 was made unavailable on revision 102 of nodes, which did not exist yet",
    ]


def test_a_write_that_takes_nothing_away_need_not_say() -> None:
    story = JournalBuilder("n1", "n2", "n3")
    story.take_lease("n1", operation=Operation.BRING_UP, cordon=False, seen={})
    story.cordon("n2")
    story.take_lease("n2", seen={})
    story.take_lease("n3", operation=Operation.VALIDATE, cordon=False, seen={})
    assert of_i6(story) == []


def test_a_number_that_no_server_writes_is_no_revision() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1", seen={"nodes": "\N{SUPERSCRIPT TWO}"})
    unsaid, unread = of_i6(story)
    assert "names no revision of the Nodes" in unsaid
    assert unread == (
        "n1 was made unavailable on '\N{SUPERSCRIPT TWO}' of nodes, which is no revision number"
    )


def test_a_write_without_a_revision_of_its_own_saw_nothing_from_the_future() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.revisions[-1] = msgspec.structs.replace(story.revisions[-1], revision=0)
    assert of_i6(story) == []


@pytest.mark.parametrize(("source", "late"), [("policies", "ClusterPolicy"), ("pods", "Pod")])
def test_each_source_is_of_its_kinds(source: str, late: str) -> None:
    story = JournalBuilder("n1")
    seen = {"nodes": str(story.revision), source: str(story.revision)}
    story.write(late, "x", lambda whole: None, manager="kubectl")
    story.advance(91)
    story.take_lease("n1", seen=seen)
    assert of_i6(story) == [
        (
            f"n1 was made unavailable on the stale revision 101 of {source}: revision 102 of a"
            f" {late} was 91 s old"
        )
    ]


def test_a_rollout_that_is_newer_is_none_of_the_policies() -> None:
    story = JournalBuilder("n1")
    seen = {"nodes": str(story.revision), "policies": str(story.revision)}
    story.release(0)
    story.advance(91)
    story.take_lease("n1", seen=seen)
    assert of_i6(story) == []
