"""A Node, field by field, as the engine sees it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from libs.contracts import node as keys
from libs.contracts.message import encode
from libs.contracts.node import Lease, Owner, Record, Request
from libs.contracts.reports import Preflight
from libs.rollout.views.node import Garbled, NodeView
from services.scheduler.hearing import Said
from services.scheduler.memory import Asked, Going, Known, Memory
from services.scheduler.placing import Place
from services.scheduler.seeing import Around, node_view
from services.scheduler.things import Node, Pod

LEASE = Lease(node_uid="u", owner=Owner.UPGRADE, token=3, since=1.0)
RECORD = Record(node_uid="u", epoch=1, token=3)


def seen(
    *,
    labels: dict[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Any = None,
    ready: str = "True",
    **around: Any,
) -> NodeView:
    """From JSON, as from a server."""
    metadata = {
        "name": "a",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2027-01-15T08:00:00Z",
        "labels": labels or {},
        "annotations": annotations or {},
    }
    status = {
        "conditions": [{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": "x"}],
        "nodeInfo": {"bootID": "b1", "kernelVersion": "6.8"},
        "capacity": {"nvidia.com/gpu": "8", "cpu": "64"},
    }
    told = {"metadata": metadata, "spec": spec or {}, "status": status}
    node = msgspec.json.decode(msgspec.json.encode(told), type=Node)
    return node_view(node, Around(namespace="gpu-operator", **around))


def test_a_plain_node() -> None:
    view = seen(place=Place("p", "v"))
    assert (view.name, view.uid, view.revision, view.boot_id) == ("a", "u", "7", "b1")
    assert (view.kernel, view.created, view.gpus) == ("6.8", 1_800_000_000.0, 8)
    assert (view.pool, view.variant) == ("p", "v")
    assert view.ready
    held = (view.cordoned, view.cordon_taint, view.last, view.excluded, view.skip)
    assert not any(held)
    assert (view.state, view.driver_label, view.lease, view.record) == ("", "", None, None)
    assert view.pods is None
    assert not any((view.writing, view.seen_by_agent, view.bears_our_sign))


@pytest.mark.parametrize(("ready", "sees"), [("True", True), ("False", False), ("Unknown", False)])
def test_ready(ready: str, sees: bool) -> None:
    assert seen(ready=ready).ready is sees


def test_cordon_and_its_taint() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    view = seen(spec={"unschedulable": True, "taints": [taint]})
    assert (view.cordoned, view.cordon_taint) == (True, True)


def test_what_we_wrote() -> None:
    view = seen(
        labels={keys.STATE_LABEL: "upgrade-done", keys.DRIVER_LABEL: "l"},
        annotations={
            keys.LEASE_ANNOTATION: encode(LEASE).decode(),
            keys.RECORD_ANNOTATION: encode(RECORD).decode(),
            keys.INITIALLY_CORDONED_ANNOTATION: "true",
        },
    )
    assert (view.state, view.driver_label, view.initially_cordoned) == ("upgrade-done", "l", True)
    assert (view.lease, view.record) == (LEASE, RECORD)


def test_what_cannot_be_read_says_why() -> None:
    broken: dict[str, str] = {keys.LEASE_ANNOTATION: "{", keys.RECORD_ANNOTATION: "{"}
    view = seen(annotations=broken)
    assert isinstance(view.lease, Garbled)
    assert isinstance(view.record, Garbled)
    assert view.record.why


def test_what_people_ask() -> None:
    view = seen(
        labels={keys.SKIP_LABEL: "true", keys.KEEP_CORDONED_LABEL: "true"},
        annotations={
            keys.REQUEST_ANNOTATION: "adopt",
            keys.REQUESTED_ANNOTATION: "true",
            keys.SAFE_LOAD_ANNOTATION: "true",
        },
    )
    assert (view.skip, view.keep_cordoned) == (True, True)
    assert (view.request, view.requested, view.safe_load) == (Request.ADOPT, True, True)


def test_what_is_empty_is_absent() -> None:
    absent: tuple[str, ...] = (
        keys.REQUEST_ANNOTATION,
        keys.REQUESTED_ANNOTATION,
        keys.SAFE_LOAD_ANNOTATION,
        keys.RECORD_ANNOTATION,
        keys.LEASE_ANNOTATION,
    )
    empty: dict[str, str] = dict.fromkeys(absent, "")
    view = seen(annotations=empty)
    assert (view.request, view.requested, view.safe_load) == (None, False, False)
    assert (view.record, view.lease) == (None, None)


@pytest.mark.parametrize("key", ["driver", "operands"])
def test_excluded(key: str) -> None:
    assert seen(labels={f"nvidia.com/gpu.deploy.{key}": "false"}).excluded
    assert not seen(labels={f"nvidia.com/gpu.deploy.{key}": "true"}).excluded


def test_who_comes_last() -> None:
    assert seen(labels={"node-role.kubernetes.io/control-plane": ""}).last
    assert seen(carries=True).last


def pod(name: str, **metadata: Any) -> Pod:
    """One that runs."""
    told = {"metadata": {"name": name, "namespace": "ml", "uid": name, **metadata}}
    return msgspec.json.decode(msgspec.json.encode(told), type=Pod)


def test_drivers_are_no_tenants() -> None:
    driver = pod("d", labels={keys.DRIVER_LABEL: "l"})
    view = seen(drivers=(driver,), tenants=(driver, pod("t")))
    assert [one.uid for one in view.driver_pods] == ["d"]
    assert view.pods is not None
    assert [one.uid for one in view.pods] == ["t"]


def test_a_pod_that_is_gone_is_not_leaving() -> None:
    known = Known(going={"t": Going(since=1.0, refused="no"), "u": Going(since=2.0)})
    (one,) = seen(known=known, tenants=(pod("t"),)).leaving
    assert (one.uid, one.since, one.refused) == ("t", 1.0, "no")


def test_a_preflight_is_of_one_boot() -> None:
    asked = Asked(id="1", boot_id="b1", label="l", at=5.0)
    view = seen(known=Known(going={}, asked=asked))
    assert view.preflight is not None
    assert (view.preflight.label, view.preflight.asked, view.preflight.answered) == ("l", 5.0, None)
    other = Asked(id="1", boot_id="b0", label="l", at=5.0)
    assert seen(known=Known(going={}, asked=other)).preflight is None


def test_only_the_answer_that_was_asked_for_counts_and_once() -> None:
    memory = Memory()
    known = memory.see("a", "u")
    known.asked = Asked(id="2", boot_id="b1", label="l", at=5.0)
    memory.answered("a", Preflight(check="1", label="l"), at=6.0)
    assert known.asked.answered is None
    memory.answered("a", Preflight(check="2", label="l"), at=7.0)
    memory.answered("a", Preflight(check="2", label="l"), at=9.0)
    assert known.asked.answered == 7.0
    assert memory.see("a", "another").asked is None


def test_nothing_said_is_nothing_known() -> None:
    view = seen(said=Said())
    assert (view.loaded, view.gate, view.evidence, view.usage) == (None, None, None, None)
    assert dict(view.components) == {}
