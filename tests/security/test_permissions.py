"""Derived permissions, without a server: the own subjects of identities are disjoint."""

from itertools import product

import pytest

from libs.bus.permissions import Permissions, permissions
from libs.contracts import subjects
from libs.contracts.identities import CHECK_SENDERS, CLUSTER_WRITERS, COMPONENTS, Identity, Writer
from libs.contracts.subjects import ANY, COMMANDS, NotASubject, matches

NODES = ("a", "a.b", "a-b", "ab")
"""Names that a careless pattern would confuse."""

ON_NODES = [
    Identity(cluster=cluster, writer=writer, node=node)
    for cluster, node, writer in product(("default", "other"), NODES, COMPONENTS)
]
OF_CLUSTERS = [
    Identity(cluster=cluster, writer=writer)
    for cluster, writer in product(("default", "other"), CLUSTER_WRITERS)
]


def example(pattern: str) -> str:
    """Return a subject in this pattern."""
    return pattern.replace(f".{ANY}", ".any").replace(".>", ".some.more")


def may(patterns: tuple[str, ...], subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in patterns)


def collisions(permitted: Permissions, other: Permissions) -> list[str]:
    return [
        *(each for each in map(example, permitted.publish) if may(other.publish, each)),
        *(each for each in map(example, permitted.subscribe) if may(other.subscribe, each)),
    ]


def test_components_share_no_subject() -> None:
    known = [(each, permissions(each)) for each in ON_NODES]
    shared = {
        (str(identity), str(other)): common
        for (identity, own), (other, foreign) in product(known, known)
        if identity != other and (common := collisions(own, foreign))
    }
    assert shared == {}


def test_services_share_only_reads_of_slots_with_components() -> None:
    shared = [
        (other, each)
        for component, other in product(ON_NODES, OF_CLUSTERS)
        for each in collisions(permissions(component), permissions(other))
    ]
    assert {other.writer for other, _ in shared} == set(CHECK_SENDERS)
    reads = subjects.direct_get(COMMANDS.name, ">")
    assert [each for _, each in shared if not matches(reads, each)] == []


@pytest.mark.parametrize("identity", ON_NODES[: len(COMPONENTS)], ids=str)
def test_a_component_may_only_read_its_slots_through_jetstream(identity: Identity) -> None:
    calls = [each for each in permissions(identity).publish if each.startswith("$")]
    assert len(calls) == len(["its slot", "checks of the audit", *CHECK_SENDERS])
    assert all(matches(subjects.direct_get(COMMANDS.name, ">"), each) for each in calls)


@pytest.mark.parametrize("identity", ON_NODES[: len(COMPONENTS)], ids=str)
def test_a_component_chooses_no_part_of_a_subject(identity: Identity) -> None:
    """What a node may store is finite, and a subject cannot contain its bytes."""
    tokens = [token for each in permissions(identity).publish for token in each.split(".")]
    assert ANY not in tokens
    assert ">" not in tokens


@pytest.mark.parametrize("identity", OF_CLUSTERS, ids=str)
def test_a_cluster_role_chooses_only_the_node_of_an_event(identity: Identity) -> None:
    events = subjects.plane_pattern(subjects.Event)
    published = [each for each in permissions(identity).publish if matches(events, each)]
    assert all(isinstance(subjects.parse(each), subjects.Event) for each in published)
    assert [each for each in published if each.count(ANY) != 1] == []


def test_a_component_has_only_the_kinds_that_it_sends() -> None:
    """Kinds of reports, of answers to checks and of events."""
    assert _kinds(Writer.TELEMETRY) == (
        ["health", "progress", "refusal", "result"],
        ["refusal"],
        ["command"],
    )
    assert _kinds(Writer.DRIVER) == (
        ["facts", "progress", "refusal", "result", "usage"],
        ["holders", "preflight", "refusal"],
        ["command"],
    )


def _kinds(component: Writer) -> tuple[list[str], list[str], list[str]]:
    allowed = permissions(Identity(writer=component, node="a")).publish
    parsed = [subjects.parse(each) for each in allowed if not each.startswith("$")]
    reports = [each for each in parsed if isinstance(each, subjects.State)]
    return (
        sorted({each.kind for each in reports if not each.asker}),
        sorted({each.kind for each in reports if each.asker}),
        sorted({each.kind for each in parsed if isinstance(each, subjects.Event)}),
    )


def test_only_schedulers_may_command() -> None:
    command = str(subjects.Command(cluster="default", node="a", component="driver"))
    commanders = [
        each for each in ON_NODES + OF_CLUSTERS if may(permissions(each).publish, command)
    ]
    assert commanders == [Identity(writer=Writer.SCHEDULER)]


def test_the_same_identity_has_the_same_permissions() -> None:
    for identity in ON_NODES + OF_CLUSTERS:
        assert permissions(identity) == permissions(identity)
        for patterns in (permissions(identity).publish, permissions(identity).subscribe):
            assert len(set(patterns)) == len(patterns)


@pytest.mark.parametrize("node", ["a.>", "*", "a b", "A", 'a"]', "a..b", ">"])
def test_a_name_that_would_widen_a_pattern_is_refused(node: str) -> None:
    with pytest.raises(NotASubject):
        permissions(Identity(writer=Writer.DRIVER, node=node))


@pytest.mark.parametrize("cluster", ["*", ">", "a.b", ""])
def test_a_cluster_that_would_widen_a_pattern_is_refused(cluster: str) -> None:
    with pytest.raises(NotASubject):
        permissions(Identity(cluster=cluster, writer=Writer.SCHEDULER))
