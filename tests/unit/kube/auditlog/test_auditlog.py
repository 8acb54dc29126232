"""Revisions from the lines of an audit log."""

from typing import Any

import pytest

from libs.contracts.journal import Revision, Verb
from libs.kube.auditlog import AuditLogConverter, CorruptAuditLog
from tests.unit.kube.auditlog.audit_lines import (
    START,
    SUCCESS,
    UID,
    audit_line,
    error_status,
    response_object,
)

IN_DEFAULT = {"namespace": "default"}


def journal(*lines: bytes) -> list[Revision]:
    converter = AuditLogConverter("audit.log")
    return [*converter.feed(b"".join(lines)), *converter.flush()]


def node(revision: int, **parts: Any) -> dict[str, Any]:
    return response_object("Node", "n1", revision, **parts)


def created(revision: int = 5, **parts: Any) -> bytes:
    return audit_line("create", "nodes", "n1", answer=node(revision, **parts), code=201)


def pod(revision: int, **parts: Any) -> dict[str, Any]:
    parts["metadata"] = {"namespace": "default", **parts.get("metadata", {})}
    parts["spec"] = {"nodeName": "n1", "terminationGracePeriodSeconds": 30, **parts.get("spec", {})}
    return response_object("Pod", "p", revision, **parts)


def pod_event(verb: str, *, subresource: str = "", **rest: Any) -> bytes:
    reference = {"namespace": "default", "subresource": subresource}
    return audit_line(verb, "pods", "p", reference=reference, **rest)


def pod_created(**parts: Any) -> bytes:
    return pod_event("create", answer=pod(10, **parts), code=201)


def test_a_patch_becomes_a_revision() -> None:
    patch = audit_line(
        "patch",
        "nodes",
        "n1",
        asked={"spec": {"unschedulable": True}},
        answer=node(6, spec={"unschedulable": True}),
        time=1.25,
        user={"username": "alice"},
        userAgent="kubectl/v1.37.1 (linux/amd64) kubernetes/abc",
    )
    assert journal(created(), patch)[1] == Revision(
        revision=6,
        time=START + 1.25,
        user="alice",
        manager="kubectl",
        verb=Verb.PATCH,
        code=200,
        kind="Node",
        name="n1",
        uid=UID,
        changed={"spec.unschedulable": (None, True)},
    )


def test_a_creation_changes_every_leaf() -> None:
    (revision,) = journal(created(spec={"unschedulable": True}))
    assert revision.verb == Verb.CREATE
    assert revision.changed == {
        "metadata.name": (None, "n1"),
        "metadata.uid": (None, UID),
        "spec.unschedulable": (None, True),
    }


OWNED = [{"manager": "us", "operation": "Apply"}]
UPDATED = [{"manager": "us", "operation": "Update"}]
WHOLE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


@pytest.mark.parametrize(
    ("query", "asked", "owners", "verb"),
    [
        pytest.param({"fieldManager": "us", "force": "true"}, WHOLE, OWNED, Verb.APPLY, id="force"),
        pytest.param({"fieldManager": "us"}, WHOLE, OWNED, Verb.APPLY, id="without force"),
        pytest.param({"fieldManager": "us"}, WHOLE, [], Verb.APPLY, id="everything given up"),
        pytest.param({"fieldManager": "us"}, WHOLE, UPDATED, Verb.PATCH, id="like a whole object"),
        pytest.param({"fieldManager": "us"}, {"spec": {}}, OWNED, Verb.PATCH, id="a part"),
        pytest.param(
            {"fieldManager": "us"}, [{"op": "test"}], OWNED, Verb.PATCH, id="a JSON patch"
        ),
        pytest.param({}, WHOLE, OWNED, Verb.PATCH, id="no manager"),
    ],
)
def test_an_apply_is_distinguished_from_other_patches(
    query: dict[str, str], asked: Any, owners: list[dict[str, str]], verb: Verb
) -> None:
    answer = node(6, metadata={"managedFields": owners})
    (revision,) = journal(
        audit_line("patch", "nodes", "n1", asked=asked, answer=answer, query=query)
    )
    assert revision.verb == verb
    assert revision.manager == query.get("fieldManager", "probe")


def test_a_refusal_has_no_changes() -> None:
    conflict = audit_line(
        "patch",
        "nodes",
        "n1",
        asked=WHOLE,
        answer=error_status(409, "Conflict"),
        code=409,
        query={"fieldManager": "us"},
    )
    revision = journal(created(), conflict)[1]
    assert (revision.revision, revision.code, revision.verb) == (0, 409, Verb.APPLY)
    assert (revision.kind, revision.name, revision.uid) == ("Node", "n1", UID)
    assert revision.changed == {}


@pytest.mark.parametrize(
    ("verb", "resource", "asked", "kind"),
    [
        ("patch", "nodes", {"spec": {}}, "Node"),
        ("create", "rollouts", {"kind": "Rollout", "metadata": {"name": "pool-a"}}, "Rollout"),
        ("delete", "rollouts", {"kind": "DeleteOptions"}, "rollouts"),
    ],
)
def test_the_kind_of_an_object_that_no_response_showed_is_that_of_the_request(
    verb: str, resource: str, asked: Any, kind: str
) -> None:
    line = audit_line(verb, resource, asked=asked, answer=error_status(403, "Forbidden"), code=403)
    assert journal(line)[0].kind == kind


def test_a_patch_that_creates_changes_every_leaf() -> None:
    (revision,) = journal(audit_line("patch", "nodes", "n1", answer=node(5), code=201))
    assert revision.changed["metadata.name"] == (None, "n1")


def test_events_are_sorted_by_revision() -> None:
    slow = audit_line("patch", "nodes", "n1", answer=node(6, spec={"a": 1}), time=1.0, took=0.5)
    quick = audit_line("patch", "nodes", "n1", answer=node(7, spec={"a": 1, "b": 1}), time=1.1)
    revisions = journal(created(), quick, slow)
    assert [revision.revision for revision in revisions] == [5, 6, 7]
    assert [revision.changed for revision in revisions[1:]] == [
        {"spec.a": (None, 1)},
        {"spec.b": (None, 1)},
    ]


def test_a_write_that_admission_held_for_seconds_is_no_step_back_of_the_clock() -> None:
    quick = audit_line("patch", "nodes", "n1", answer=node(6, spec={"a": 1}), time=3.0)
    held = audit_line("patch", "nodes", "n1", answer=node(7, spec={"a": 2}), time=1.0, took=2.5)
    put_back = audit_line("patch", "nodes", "n1", answer=node(8, spec={"a": 3}), time=0.5)
    times = [revision.time - START for revision in journal(created(), quick, held, put_back)]
    assert times[1:] == pytest.approx([3.0, 3.0, 0.503])


def test_a_write_that_changes_nothing_keeps_its_time_and_moves_no_other() -> None:
    write = audit_line("patch", "nodes", "n1", answer=node(6, spec={"a": 1}), time=1.0)
    same = audit_line("patch", "nodes", "n1", answer=node(6, spec={"a": 1}), time=9.0)
    after = audit_line("patch", "nodes", "n1", answer=node(7, spec={"a": 2}), time=2.0)
    times = [revision.time - START for revision in journal(created(), write, same, after)]
    assert times[1:] == pytest.approx([1.0, 9.0, 2.0])


def test_an_event_that_comes_too_late_has_no_changes() -> None:
    quick = audit_line("patch", "nodes", "n1", answer=node(7, spec={"a": 1, "b": 1}), time=1.0)
    another = response_object("Node", "n2", 9, metadata={"uid": "uid-2"})
    much_later = audit_line("patch", "nodes", "n2", answer=another, time=9.0)
    late = audit_line("patch", "nodes", "n1", answer=node(6, spec={"a": 1}), time=1.0, took=10)
    last = audit_line("patch", "nodes", "n1", answer=node(10, spec={"a": 1, "b": 2}), time=12.0)
    converter = AuditLogConverter("audit.log")
    revisions = [
        *converter.feed(created() + quick + much_later + late + last),
        *converter.flush(),
    ]
    by_revision = {revision.revision: revision.changed for revision in revisions}
    assert by_revision[7] == {"spec.a": (None, 1), "spec.b": (None, 1)}
    assert by_revision[6] == {}
    assert by_revision[10] == {"spec.b": (1, 2)}


def test_events_are_held_back_until_they_are_settled() -> None:
    converter = AuditLogConverter("audit.log")
    assert converter.feed(created()) == []
    later = audit_line("patch", "nodes", "n1", answer=node(6), time=60.0)
    assert [revision.revision for revision in converter.feed(later)] == [5]
    assert [revision.revision for revision in converter.flush()] == [6]
    assert converter.flush() == []


def test_a_deletion_that_a_kubelet_finishes_is_a_mark_and_then_a_deletion() -> None:
    marks = {"deletionTimestamp": "2027-01-15T08:00:30Z", "deletionGracePeriodSeconds": 30}
    ended = {"deletionTimestamp": "2027-01-15T08:00:01Z", "deletionGracePeriodSeconds": 0}
    marked, deleted = journal(
        pod_created(),
        pod_event("delete", answer=pod(11, metadata=marks)),
        pod_event("delete", answer=pod(13, metadata=ended)),
    )[1:]
    assert (marked.revision, marked.changed) == (
        11,
        {f"metadata.{field}": (None, value) for field, value in marks.items()},
    )
    assert deleted.revision == 13
    assert deleted.changed["metadata.name"] == ("p", None)
    assert deleted.changed["metadata.deletionGracePeriodSeconds"] == (30, None)


def test_a_deletion_answered_without_the_object_is_known_by_the_details() -> None:
    answer = SUCCESS | {"details": {"name": "n1", "kind": "nodes", "uid": UID}}
    replacement = response_object("Node", "n1", 9, metadata={"uid": "another"})
    _, deleted, recreated = journal(
        created(),
        audit_line("delete", "nodes", "n1", answer=answer),
        audit_line("create", "nodes", "n1", answer=replacement, code=201),
    )
    assert (deleted.kind, deleted.name, deleted.uid, deleted.revision) == ("Node", "n1", UID, 0)
    assert deleted.changed == {"metadata.name": ("n1", None), "metadata.uid": (UID, None)}
    assert recreated.changed["metadata.uid"] == (None, "another")


def test_an_object_is_deleted_with_its_last_finalizer() -> None:
    marks = {"deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 0}
    held = {"finalizers": ["sluice.dev/open"]}
    _, marked, released, refused = journal(
        created(metadata=held),
        audit_line("delete", "nodes", "n1", answer=node(6, metadata=held | marks)),
        audit_line("patch", "nodes", "n1", answer=node(6, metadata=marks), time=0.1),
        audit_line(
            "patch", "nodes", "n1", answer=error_status(404, "NotFound"), code=404, time=0.2
        ),
    )
    assert marked.changed["metadata.deletionTimestamp"] == (None, marks["deletionTimestamp"])
    assert released.changed == {"metadata.finalizers": (["sluice.dev/open"], None)}
    assert refused.uid == "", "no object of that name is left"


def test_a_deleted_collection_is_one_revision_per_object() -> None:
    names = {"da": "uid-a", "db": "uid-b"}
    items = [
        {"metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": "8"}}
        for name, uid in names.items()
    ]
    answer = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}
    revisions = journal(
        audit_line(
            "deletecollection", "configmaps", answer=answer | {"items": items}, reference=IN_DEFAULT
        )
    )
    assert [
        (revision.kind, revision.namespace, revision.name, revision.uid, revision.revision)
        for revision in revisions
    ] == [("ConfigMap", "default", name, uid, 0) for name, uid in names.items()]
    assert {revision.verb for revision in revisions} == {Verb.DELETE}
    assert [revision.changed["metadata.name"] for revision in revisions] == [
        ("da", None),
        ("db", None),
    ]


EVICTION = {"kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}


def test_an_eviction_changes_the_pod() -> None:
    evict = pod_event(
        "create", subresource="eviction", asked=EVICTION, answer=SUCCESS, code=201, time=2.5
    )
    marks = {"deletionTimestamp": "2027-01-15T08:00:32Z", "deletionGracePeriodSeconds": 30}
    disrupted = {"type": "DisruptionTarget", "status": "True", "message": "as the server has it"}
    status = {"phase": "Running", "conditions": [disrupted]}
    kubelet = pod_event(
        "patch", subresource="status", answer=pod(12, metadata=marks, status=status), time=2.6
    )
    _, evicted, reported = journal(pod_created(), evict, kubelet)
    assert (evicted.verb, evicted.kind, evicted.name, evicted.uid) == (Verb.EVICT, "Pod", "p", UID)
    assert (evicted.code, evicted.revision) == (201, 0)
    assert evicted.changed["metadata.deletionTimestamp"] == (None, "2027-01-15T08:00:32Z")
    assert evicted.changed["status.conditions[type=DisruptionTarget].status"] == (None, "True")
    assert reported.changed == {"status.phase": (None, "Running")}, "the eviction changed the rest"


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"spec": {"nodeName": ""}}, id="on no node"),
        pytest.param({"status": {"phase": "Succeeded"}}, id="finished"),
        pytest.param({"spec": {"terminationGracePeriodSeconds": 0}}, id="without grace"),
    ],
)
def test_an_eviction_without_a_kubelet_deletes_the_pod(parts: dict[str, Any]) -> None:
    evict = pod_event("create", subresource="eviction", asked=EVICTION, answer=SUCCESS, code=201)
    evicted = journal(pod_created(**parts), evict)[1]
    assert evicted.changed["metadata.name"] == ("p", None)


def test_an_eviction_against_a_disruption_budget_is_a_refusal() -> None:
    answer = error_status(429, "TooManyRequests", causes=[{"reason": "DisruptionBudget"}])
    evict = pod_event("create", subresource="eviction", asked=EVICTION, answer=answer, code=429)
    refused = journal(pod_created(), evict)[1]
    assert (refused.verb, refused.code, refused.kind) == (Verb.EVICT, 429, "Pod")
    assert (refused.changed, refused.uid) == ({}, UID)


def test_a_binding_changes_the_pod() -> None:
    bind = pod_event(
        "create",
        subresource="binding",
        asked={"kind": "Binding", "target": {"kind": "Node", "name": "n1"}},
        answer=SUCCESS,
        code=201,
        user={"username": "system:kube-scheduler"},
    )
    started = pod_event("patch", subresource="status", answer=pod(12, status={"phase": "Running"}))
    _, bound, running = journal(pod_created(spec={"nodeName": ""}), bind, started)
    assert (bound.kind, bound.name, bound.uid) == ("Binding", "p", UID)
    assert bound.changed["spec.nodeName"] == ("", "n1")
    assert running.changed == {"status.phase": (None, "Running")}


def test_events_without_bodies_have_no_changes() -> None:
    without_body = audit_line("patch", "nodes", "n1", time=0.1)
    with_body = audit_line("patch", "nodes", "n1", answer=node(9, spec={"a": 1}), time=0.2)
    _, unknown, after = journal(created(), without_body, with_body)
    assert (unknown.kind, unknown.uid, unknown.revision) == ("Node", UID, 0)
    assert (unknown.changed, after.changed) == ({}, {})


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(audit_line("get", "nodes", "n1", answer=node(5)), id="a read"),
        pytest.param(audit_line("watch", "nodes"), id="a watch"),
        pytest.param(
            audit_line("update", "nodes", answer=node(5), query={"dryRun": "All"}), id="dry"
        ),
        pytest.param(
            audit_line("delete", "nodes", "n1", asked={"dryRun": ["All"]}, answer=node(5)),
            id="dry by its body",
        ),
        pytest.param(
            pod_event(
                "create",
                subresource="eviction",
                asked=EVICTION | {"deleteOptions": {"dryRun": ["All"]}},
                answer=SUCCESS,
            ),
            id="a dry eviction",
        ),
        pytest.param(audit_line("update", "nodes", stage="RequestReceived"), id="an earlier stage"),
        pytest.param(
            audit_line(
                "create",
                "subjectaccessreviews",
                reference={"apiGroup": "authorization.k8s.io"},
                answer={"kind": "SubjectAccessReview"},
            ),
            id="an access review",
        ),
        pytest.param(pod_event("create", subresource="exec", code=101), id="an exec"),
        pytest.param(
            audit_line("create", "nodes", objectRef=None, code=404), id="without an object"
        ),
        pytest.param(
            audit_line("create", "x", answer={"kind": "X", "metadata": {}}), id="not stored"
        ),
        pytest.param(b"\n", id="an empty line"),
    ],
)
def test_requests_that_write_nothing_are_no_revisions(line: bytes) -> None:
    assert journal(line) == []


def test_the_log_may_be_fed_in_any_parts() -> None:
    text = created() + audit_line("patch", "nodes", "n1", answer=node(6, spec={"a": 1}), time=9.0)
    converter = AuditLogConverter("audit.log")
    parts = [text[start : start + 100] for start in range(0, len(text), 100)]
    piecemeal = [revision for part in parts for revision in converter.feed(part)]
    assert [*piecemeal, *converter.flush()] == journal(text)


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"Event","api\n',
        b'{"kind":"Event","apiVersion":"v1","metadata":{}}\n',
        b"I1121 06:34:18.031124    6773 shared_informer.go:524]\n",
    ],
)
def test_a_malformed_line_is_named(line: bytes) -> None:
    with pytest.raises(
        CorruptAuditLog, match=r"line 2 of audit\.log is no event of audit\.k8s\.io/v1"
    ):
        journal(created(), line, created())


def test_deleted_and_replaced_objects_are_forgotten() -> None:
    def shown_as(uid: str, revision: int, **parts: Any) -> dict[str, Any]:
        return response_object("Pod", "p", revision, metadata={"uid": uid}, **parts)

    answer = SUCCESS | {"details": {"uid": "ended"}}
    lines = [
        audit_line("create", "pods", "p", answer=shown_as("ended", 1), code=201),
        audit_line("delete", "pods", "p", answer=answer),
        audit_line("create", "pods", "p", answer=shown_as("replaced", 2), code=201),
        audit_line("create", "pods", "p", answer=shown_as("living", 3), code=201),
        *(
            audit_line("patch", "pods", "p", answer=shown_as(uid, revision, spec={"a": 1}))
            for revision, uid in enumerate(("living", "ended", "replaced"), start=4)
        ),
    ]
    assert [shown.changed for shown in journal(*lines)[-3:]] == [{"spec.a": (None, 1)}, {}, {}]
