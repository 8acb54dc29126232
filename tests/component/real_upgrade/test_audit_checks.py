"""Reading an audit log: the journal, and forbidden requests."""

from pathlib import Path
from typing import Any

import msgspec

from libs.contracts.journal import Verb
from tests.component.real_upgrade.audit_checks import read_audit_log

AT = "2026-01-01T00:00:00.000000Z"
TELEMETRY = "system:serviceaccount:gpu-operator:sluice-telemetry-cluster"
OTHERS = ["system:serviceaccounts", "system:serviceaccounts:kube-system"]


def line(
    user: str, groups: list[str], verb: str, uri: str, code: int, **more: Any
) -> dict[str, Any]:
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "requestReceivedTimestamp": AT,
        "stageTimestamp": AT,
        "user": {"username": user, "groups": groups},
        "verb": verb,
        "requestURI": uri,
        "responseStatus": {"code": code},
        **more,
    }


def test_forbidden_requests_are_counted_and_reads_are_no_revisions(tmp_path: Path) -> None:
    ours = ["system:serviceaccounts", "system:serviceaccounts:gpu-operator"]
    node = {"resource": "nodes", "name": "n", "apiVersion": "v1"}
    pods = {"resource": "pods", "apiVersion": "v1"}
    node_object = {"kind": "Node", "metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}}
    lines = [
        line(TELEMETRY, ours, "list", "/api/v1/nodes?limit=500", 200, objectRef=node),
        line(TELEMETRY, ours, "list", "/api/v1/pods?limit=500", 403, objectRef=pods),
        line(TELEMETRY, ours, "list", "/api/v1/pods?limit=500&continue=x", 403, objectRef=pods),
        line("system:serviceaccount:kube-system:x", OTHERS, "list", "/api/v1/pods", 403),
        line("person", ["system:masters"], "create", "/api/v1/nodes", 201, objectRef=node)
        | {"responseObject": node_object},
    ]
    log = tmp_path / "audit.log"
    log.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in lines))
    summary = read_audit_log(log)
    assert summary.requests == {
        ("sluice-telemetry-cluster", "", "nodes", "list"),
        ("sluice-telemetry-cluster", "", "pods", "list"),
    }
    assert "sluice-scheduler: pods/eviction create" in summary.unused_rights()
    assert "sluice-telemetry-cluster: nodes get list watch" not in summary.unused_rights()
    assert summary.forbidden == {"sluice-telemetry-cluster: list /api/v1/pods": 2}
    assert [
        (revision.verb, revision.revision, revision.user) for revision in summary.revisions
    ] == [(Verb.CREATE, 7, "person")]
    journal = tmp_path / "revisions"
    summary.write_journal(journal)
    assert journal.read_bytes().count(b"\n") == 1
