"""What people's verbs write, and what they refuse."""

from collections.abc import Callable
from typing import Any

import pytest

from libs.contracts.node import (
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
)
from libs.ctl import edits
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.versions import TARGET_ANNOTATION
from libs.fleet.records import record_of
from libs.kube.views import Metadata
from libs.policy.render import rendered
from tests.builders.fleet import written


def node(state: str = "", *, record: bool = False, lease: LeaseOwner | None = None) -> Metadata:
    annotations = written(
        NodeRecord(node_uid="u", epoch=1, token=1) if record else None,
        lease and NodeLease(node_uid="u", owner=lease, token=1, since=0.0),
    )
    labels = {STATE_LABEL: state} if state else {}
    return Metadata(name="node-1", uid="u", labels=labels, annotations=annotations)


def refused(decide: Callable[..., Edit], *arguments: Any) -> str:
    with pytest.raises(Failure) as failure:
        decide(*arguments)
    assert failure.value.code is ExitCode.REFUSED
    return str(failure.value)


@pytest.mark.parametrize("state", ["upgrade-done", "upgrade-failed"])
def test_a_done_or_failed_node_is_retried(state: str) -> None:
    edit = edits.retry(node(state))
    assert edit.patch == {"metadata": {"labels": {STATE_LABEL: "upgrade-required"}}}
    assert edit.risk == "node-1 is drained and upgraded"


def test_other_nodes_are_not_retried() -> None:
    assert edits.retry(node("upgrade-required")).patch == {}
    assert "its state is drain-required" in refused(edits.retry, node("drain-required"))
    assert "it has no upgrade state" in refused(edits.retry, node())
    under_way = refused(edits.retry, node("drain-required", lease=LeaseOwner.UPGRADE))
    assert under_way == (
        "node-1 cannot be retried: an attempt is under way, and its state is drain-required;"
        " `sluice why node-1` shows it"
    )
    assert edits.retry(node("upgrade-failed", lease=LeaseOwner.UPGRADE)).patch


def test_a_node_is_skipped_and_not_skipped_any_more() -> None:
    assert edits.skip(node()).patch == {"metadata": {"labels": {SKIP_LABEL: "true"}}}
    assert "still finishes" in edits.skip(node(lease=LeaseOwner.UPGRADE)).done
    skipped = Metadata(name="node-1", labels={SKIP_LABEL: "true"})
    assert edits.skip(skipped).patch == {}
    assert edits.unskip(skipped).patch == {"metadata": {"labels": {SKIP_LABEL: None}}}
    assert edits.unskip(node()).patch == {}


def test_adopt_is_for_nodes_without_a_record() -> None:
    wanted = {"metadata": {"annotations": {REQUEST_ANNOTATION: "adopt"}}}
    assert edits.adopt(node()).patch == wanted
    assert "its record is there" in refused(edits.adopt, node(record=True))


def test_forget_is_for_failed_nodes_and_lost_records() -> None:
    wanted = {"metadata": {"annotations": {REQUEST_ANNOTATION: "forget"}}}
    assert edits.forget(node()).patch == wanted
    assert edits.forget(node("upgrade-failed", record=True)).patch == wanted
    assert "is managed" in refused(edits.forget, node("upgrade-done", record=True))
    in_flight = node("upgrade-failed", record=True, lease=LeaseOwner.UPGRADE)
    assert "is in flight" in refused(edits.forget, in_flight)


def test_a_request_that_waits_is_not_replaced() -> None:
    metadata = Metadata(name="node-1", annotations={REQUEST_ANNOTATION: "forget"})
    assert edits.forget(metadata).patch == {}
    assert "has the request 'forget'" in refused(edits.adopt, metadata)


def test_a_record_of_an_earlier_node_of_the_name_is_none() -> None:
    record = NodeRecord(node_uid="earlier", epoch=1, token=1)
    metadata = Metadata(name="node-1", uid="u", annotations=written(record))
    assert record_of(metadata) is None
    assert record_of(node(record=True)) is not None
    assert record_of(Metadata(name="n", annotations={RECORD_ANNOTATION: "{"})) is None


def test_the_annotation_of_a_target_is_the_rendered_one() -> None:
    assert TARGET_ANNOTATION == rendered.TARGET_ANNOTATION
