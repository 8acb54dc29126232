"""The three streams have disjoint subjects and explicit limits."""

from itertools import combinations

import pytest

from libs.contracts import subjects
from libs.contracts.catalogue import PLANES, Plane
from libs.contracts.identities import CHECK_SENDERS, COMPONENTS
from libs.contracts.senders import event_subjects, report_subjects
from libs.contracts.subjects import (
    COMMANDS,
    EVENTS,
    HEADERS,
    ROOT,
    STATE,
    STREAMS,
    Stream,
    matches,
)
from tests.contracts.goldens import EXAMPLES, form_of, path_of

NODE = "a.b"


def _subjects_of(plane: Plane) -> list[str]:
    parts = dict.fromkeys(plane.subject.__struct_fields__, "x")
    full = str(plane.subject(**parts))
    return [full] if "[" not in plane.shape else [full, full.rpartition(".")[0]]


def _overlap(pattern: str, other: str) -> bool:
    """Report whether a subject matches both patterns, which are literal or end in `>`."""
    left, right = pattern.removesuffix(".>").split("."), other.removesuffix(".>").split(".")
    return all("*" in pair or len(set(pair)) == 1 for pair in zip(left, right, strict=False))


def test_subjects_of_different_streams_are_disjoint() -> None:
    for stream, other in combinations(STREAMS, 2):
        assert not [
            (pattern, other_pattern)
            for pattern in stream.subjects
            for other_pattern in other.subjects
            if _overlap(pattern, other_pattern)
        ]


@pytest.mark.parametrize("plane", PLANES, ids=lambda plane: plane.name)
def test_a_plane_is_stored_in_its_stream_only(plane: Plane) -> None:
    for subject in _subjects_of(plane):
        streams_of_subject = [
            stream
            for stream in STREAMS
            if any(matches(pattern, subject) for pattern in stream.subjects)
        ]
        assert streams_of_subject == ([plane.stream] if plane.stream else [])


def test_a_stream_has_exactly_the_subjects_of_its_planes() -> None:
    for stream in STREAMS:
        carried = [plane.subject for plane in PLANES if plane.stream is stream]
        assert stream.subjects == tuple(subjects.plane_pattern(subject) for subject in carried)


def test_notifications_are_not_stored() -> None:
    assert COMMANDS.notify is not None
    _, to = COMMANDS.notify
    for pattern in (pattern for stream in STREAMS for pattern in stream.subjects):
        assert not _overlap(pattern, to.replace("$1", "*"))
        assert not _overlap(pattern, to.replace("$1", "command"))
    assert to.startswith(f"{ROOT}.")


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_limits_are_explicit(stream: Stream) -> None:
    assert stream.name == stream.name.upper()
    assert stream.max_consumers > 0
    assert stream.per_subject > 0
    assert stream.max_message > 0
    assert stream.max_bytes > 0
    kept_for_ever = stream.per_subject == 1
    assert kept_for_ever or (stream.max_age > 0 and stream.deny_purge)
    assert stream.refuses_when_full == kept_for_ever, "no slot or report may vanish"


def _node_bytes(stream: Stream, subjects_of_node: int) -> int:
    """Return what a node can store at most, in messages of the largest size."""
    return subjects_of_node * stream.per_subject * (stream.max_message + HEADERS)


HONEST_NODES, HONEST_BYTES = 10_000, 64 * 1024


def test_a_hundred_nodes_at_their_limits_do_not_fill_state() -> None:
    of_node = [
        subject
        for component in COMPONENTS
        for subject in report_subjects(component, cluster="default", node=NODE)
    ]
    assert len(set(of_node)) == 31
    limit = _node_bytes(STATE, len(of_node))
    assert limit < 12 * 1024**2
    assert 100 * limit + HONEST_NODES * HONEST_BYTES < STATE.max_bytes


def test_a_node_fills_a_small_part_of_events() -> None:
    """A full stream drops its oldest events, so this is how far a node pushes out others'."""
    of_node = [
        subject
        for component in COMPONENTS
        for subject in event_subjects(component, cluster="default", node=NODE)
    ]
    assert len(set(of_node)) == 8
    assert _node_bytes(EVENTS, len(of_node)) < 0.035 * EVENTS.max_bytes


def test_slots_and_checks_of_ten_thousand_nodes_fit() -> None:
    slots_of_node = len(COMPONENTS) + len(CHECK_SENDERS)
    checks_of_audit = len(COMPONENTS)
    of_node = slots_of_node * 2048 + checks_of_audit * 512
    assert HONEST_NODES * of_node < COMMANDS.max_bytes


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_far_below_the_message_limit(name: str) -> None:
    form = form_of(name)
    for plane in PLANES:
        if form in plane.forms and plane.stream:
            assert path_of(name).stat().st_size * 20 < plane.stream.max_message
