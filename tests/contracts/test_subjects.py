"""Subjects: building, parsing, patterns, notifications and inboxes."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from libs.contracts import subjects
from libs.contracts.catalogue import NOTIFY_SHAPES, PLANES
from libs.contracts.identities import COMPONENTS, Identity, Writer
from libs.contracts.subjects import ANY, NO_NODE, ROOT, NotASubject, matches, parse

limited = settings(deadline=None, max_examples=60)

_label = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
tokens = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
nodes = st.lists(_label, min_size=1, max_size=4).map(".".join)
planes = st.sampled_from(subjects.PLANES)


def _subject(kind: type[Any], draw: Any, *, wild: bool) -> Any:
    """Draw a subject of this plane, with some parts `ANY` if `wild`."""
    parts: dict[str, str] = {}
    for field in msgspec.structs.fields(kind):
        part = nodes | st.just(NO_NODE) if field.name == "node" else tokens
        if not field.required:
            part = part | st.just("")
        parts[field.name] = draw(part | st.just(ANY) if wild else part, field.name)
    return kind(**parts)


@limited
@given(planes, st.booleans(), st.data())
def test_a_printed_subject_parses_to_itself(
    kind: type[Any], wild: bool, data: st.DataObject
) -> None:
    subject = _subject(kind, data.draw, wild=wild)
    assert parse(str(subject)) == subject
    assert str(subject).startswith(f"{ROOT}.{kind.plane}.")
    assert " " not in str(subject)
    assert ">" not in str(subject)


@limited
@given(planes, nodes, st.data())
def test_a_node_name_with_dots_is_one_token(
    kind: type[Any], node: str, data: st.DataObject
) -> None:
    assume("node" in kind.__struct_fields__)
    subject = msgspec.structs.replace(_subject(kind, data.draw, wild=False), node=node)
    token = str(subject).split(".")[4]
    assert token.replace("_", ".") == node
    assert parse(str(subject)).node == node  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@limited
@given(st.text(max_size=60) | st.text("abc-_.*>$ ", max_size=40).map(f"{ROOT}.state.".__add__))
def test_a_parsed_subject_prints_to_itself(text: str) -> None:
    try:
        subject = parse(text)
    except NotASubject:
        return
    assert str(subject) == text


@pytest.mark.parametrize(
    "bad",
    ["", " ", "A", "a.b", "a_b", "a b", "-a", "a-", "ä", "a\n", ">", "a*", "$JS", "a" * 64, "\x00"],
)
def test_an_invalid_token_is_refused_with_its_field(bad: str) -> None:
    for kind in subjects.PLANES:
        good = dict.fromkeys(kind.__struct_fields__, "a")
        for field in msgspec.structs.fields(kind):
            if field.name in ("node", "pool") or (not field.required and not bad):
                continue
            with pytest.raises(NotASubject, match=field.name):
                str(kind(**{**good, field.name: bad}))


@pytest.mark.parametrize(
    "bad", [" ", "A", "a_b", ".a", "a.", "a..b", "-a", "a-", "ä", "a\n", ">", "*.a", "a" * 254]
)
def test_an_invalid_node_name_is_refused(bad: str) -> None:
    with pytest.raises(NotASubject, match="not the name of a Kubernetes node"):
        str(subjects.Command(cluster="default", node=bad, component="driver"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ROOT,
        f"{ROOT}.",
        f"{ROOT}.state",
        f"{ROOT}.nothing.default.a.driver",
        f"x{ROOT}.beat.default.a.driver",
        f"{ROOT}.{ROOT}.beat.default.a.driver",
        f"{ROOT.replace('1', '2')}.beat.default.a.driver",
        f"{ROOT}.beat.default.a",
        f"{ROOT}.check.default.a.driver",
        f"{ROOT}.beat.default.a.driver.facts",
        f"{ROOT}.beat.default..driver",
        f"{ROOT}.beat.default.a.driver.",
        f"{ROOT}.beat.default.a.>",
        f"{ROOT}.state.default.a.driver.facts.scheduler.more",
        f"{ROOT}.state.default.a.driver.facts.",
    ],
)
def test_an_invalid_subject_is_refused(text: str) -> None:
    with pytest.raises(NotASubject):
        parse(text)


@limited
@given(st.sampled_from((subjects.Command, subjects.Check)), st.booleans(), st.data())
def test_a_notification_identifies_its_slot(
    kind: type[Any], wild: bool, data: st.DataObject
) -> None:
    slot = _subject(kind, data.draw, wild=wild)
    notification = subjects.notify(slot)
    assert subjects.slot_of(notification) == slot
    assert not matches(subjects.plane_pattern(kind), notification)
    with pytest.raises(NotASubject):
        parse(notification)
    with pytest.raises(NotASubject):
        subjects.slot_of(str(slot))


def test_only_slots_have_notifications() -> None:
    state = subjects.State(cluster="default", node="a", component="driver", kind="facts")
    with pytest.raises(NotASubject, match="not a notification of a slot"):
        subjects.slot_of(subjects.notify(state))  # pyright: ignore[reportArgumentType]


@limited
@given(st.sampled_from((subjects.Command, subjects.Check)), st.data())
def test_the_server_republishes_to_the_notification_subject(
    kind: type[Any], data: st.DataObject
) -> None:
    """The server maps the first wildcard to $1 and the rest of the subject to the rest."""
    slot = _subject(kind, data.draw, wild=False)
    assert matches(subjects.NOTIFY_FROM, str(slot))
    plane, rest = str(slot).removeprefix(f"{ROOT}.").split(".", 1)
    sent_to = subjects.NOTIFY_TO.replace("$1", plane).removesuffix(">") + rest
    assert sent_to == subjects.notify(slot)


@limited
@given(planes, st.data())
def test_a_pattern_matches_subjects_with_equal_fixed_parts(
    kind: type[Any], data: st.DataObject
) -> None:
    pattern = _subject(kind, data.draw, wild=True)
    subject = _subject(kind, data.draw, wild=False)
    for name in kind.__struct_fields__:
        if data.draw(st.booleans(), f"same {name}") and getattr(pattern, name) != ANY:
            subject = msgspec.structs.replace(subject, **{name: getattr(pattern, name)})
    agrees = True
    for name in kind.__struct_fields__:
        expected, actual = getattr(pattern, name), getattr(subject, name)
        is_present = bool(actual) or name == "node"
        agrees = agrees and (expected == actual or (expected == ANY and is_present))
    assert matches(str(pattern), str(subject)) == agrees


@pytest.mark.parametrize(
    ("pattern", "subject", "is_match"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.b", "a", False),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a", False),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c", True),
        (">", "a", True),
        ("a.*.>", "a.b", False),
        ("a.*.>", "a.b.c", True),
    ],
)
def test_patterns_match_by_the_rules_of_nats(pattern: str, subject: str, is_match: bool) -> None:
    assert matches(pattern, subject) is is_match


def test_patterns_of_a_plane_and_of_a_cluster() -> None:
    here = subjects.Beat(cluster="east", node="a.b", component="driver")
    assert matches(subjects.plane_pattern(subjects.Beat), str(here))
    assert matches(subjects.cluster_pattern(subjects.Beat, "east"), str(here))
    assert not matches(subjects.cluster_pattern(subjects.Beat, "west"), str(here))
    assert not matches(subjects.plane_pattern(subjects.State), str(here))


def test_catalogue_shapes_equal_printed_subjects() -> None:
    for plane in PLANES:
        parts = {name: name for name in plane.subject.__struct_fields__}
        printed = str(plane.subject(**parts))
        assert printed == plane.shape.replace("[", "").replace("]", "").replace("<", "").replace(
            ">", ""
        )
    for shape, slot in zip(NOTIFY_SHAPES, (subjects.Command, subjects.Check), strict=True):
        parts = {name: name for name in slot.__struct_fields__}
        assert subjects.notify(slot(**parts)) == shape.replace("<", "").replace(">", "")


def _identity(writer: Writer, node: str, cluster: str) -> Identity:
    return Identity(cluster=cluster, writer=writer, node=node if writer in COMPONENTS else "")


identities = st.builds(
    _identity, st.sampled_from(list(Writer)), nodes, st.sampled_from(("default", "east"))
)


@limited
@given(identities, identities, tokens)
def test_inboxes_of_different_identities_are_disjoint(
    identity: Identity, other: Identity, token: str
) -> None:
    pattern = f"{subjects.inbox(identity)}.>"
    assert matches(pattern, f"{subjects.inbox(identity)}.{token}")
    assert matches(pattern, f"{subjects.inbox(other)}.{token}") == (identity == other)
    assert not any(matches(subjects.plane_pattern(plane), pattern) for plane in subjects.PLANES)


@limited
@given(identities, tokens, st.sampled_from(("default", "east")))
def test_services_reply_to_cluster_writers_but_not_to_components(
    asker: Identity, token: str, cluster: str
) -> None:
    reply = f"{subjects.inbox(asker)}.{token}"
    is_allowed = asker.writer not in COMPONENTS and asker.cluster == cluster
    assert subjects.is_allowed_reply(reply, cluster) == is_allowed
    assert matches(subjects.querier_inboxes(cluster), reply) == is_allowed
