"""Audit-log lines of a kube-apiserver 1.37, reduced to the fields that are read."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

START = 1_800_000_000.0
KINDS = {"nodes": "Node", "pods": "Pod", "configmaps": "ConfigMap", "rollouts": "Rollout"}
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
UID = "6265300c-0c88-4f0b-aea8-8100195557de"


def at(seconds: float) -> str:
    """Return a timestamp in the format of the log."""
    return datetime.fromtimestamp(START + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def error_status(code: int, reason: str, **details: Any) -> dict[str, Any]:
    """Return the body of a refusal."""
    return SUCCESS | {"status": "Failure", "reason": reason, "details": details, "code": code}


def response_object(kind: str, name: str, revision: int, **parts: Any) -> dict[str, Any]:
    """Return an object as in a response; `metadata` is added to the common fields."""
    metadata = {
        "name": name,
        "uid": UID,
        "resourceVersion": str(revision),
        "managedFields": [{"manager": "probe", "operation": "Update"}],
        **parts.pop("metadata", {}),
    }
    return {"kind": kind, "apiVersion": "v1", "metadata": metadata, **parts}


def audit_line(
    verb: str,
    resource: str,
    name: str = "",
    *,
    asked: Any = None,
    answer: Any = None,
    code: int = 200,
    time: float = 0.0,
    took: float = 0.003,
    query: dict[str, str] | None = None,
    reference: dict[str, str] | None = None,
    **rest: Any,
) -> bytes:
    """Return one line with its newline."""
    address = f"/api/v1/{resource}/{name}?{urlencode(query or {})}"
    whole = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": "0a7ab5c9-0e0c-4f2b-8a1e-5d1f6c8e9a11",
        "stage": "ResponseComplete",
        "requestURI": address,
        "verb": verb,
        "user": {"username": "admin", "groups": ["system:masters"]},
        "userAgent": "probe/1.0 (linux/amd64)",
        "objectRef": {"resource": resource, "name": name, "apiVersion": "v1", **(reference or {})},
        "responseStatus": {"metadata": {}, "code": code},
        "requestObject": asked,
        "responseObject": answer,
        "requestReceivedTimestamp": at(time),
        "stageTimestamp": at(time + took),
        "annotations": {"authorization.k8s.io/decision": "allow"},
        **rest,
    }
    return json.dumps(whole).encode() + b"\n"
