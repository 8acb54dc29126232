"""Identities: components have a node, all other writers have none."""

import pytest

from libs.contracts.events import EventKind
from libs.contracts.identities import CHECK_SENDERS, CLUSTER_WRITERS, COMPONENTS, Identity, Writer
from libs.contracts.reports import StateKind
from libs.contracts.senders import ANSWER_WRITERS, EVENT_WRITERS, REPORT_WRITERS


def test_every_writer_is_either_a_component_or_a_cluster_writer() -> None:
    assert set(COMPONENTS) | set(CLUSTER_WRITERS) == set(Writer)
    assert not set(COMPONENTS) & set(CLUSTER_WRITERS)
    assert set(CHECK_SENDERS) < set(CLUSTER_WRITERS)
    assert Writer.CTL not in CHECK_SENDERS, "people ask services, not components"


def test_every_kind_has_a_writer() -> None:
    assert {*REPORT_WRITERS, *ANSWER_WRITERS} == set(StateKind)
    assert set(EVENT_WRITERS) == set(EventKind)
    for table in (REPORT_WRITERS, ANSWER_WRITERS):
        assert all(set(writers) <= set(COMPONENTS) for writers in table.values())


@pytest.mark.parametrize("writer", COMPONENTS)
def test_a_component_belongs_to_a_node(writer: Writer) -> None:
    assert str(Identity(writer=writer, node="a.b")) == f"default/a.b/{writer.value}"
    with pytest.raises(ValueError, match="needs a node"):
        Identity(writer=writer)


@pytest.mark.parametrize("writer", CLUSTER_WRITERS)
def test_a_cluster_role_belongs_to_no_node(writer: Writer) -> None:
    assert str(Identity(cluster="east", writer=writer)) == f"east/-/{writer.value}"
    with pytest.raises(ValueError, match="belongs to no node"):
        Identity(writer=writer, node="a")
