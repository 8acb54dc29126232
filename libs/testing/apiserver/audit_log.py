"""The audit log that a real API server writes under the policy in docs/invariants.md.

It has a line for each answered write, so that `sluice audit` judges a simulated cluster as well.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.requests import ApiCall

_CORE: Final = frozenset({"events", "nodes", "pods"})
_GROUPS: Final = frozenset({"events.k8s.io", "nvidia.com", "sluice.dev"})
_VERBS: Final = {"apply": "patch", "bind": "create", "evict": "create"}
"""What the log calls the server's own verbs."""

_encode = msgspec.json.Encoder().encode


class AuditLog:
    """Appends to a file, which others may read meanwhile."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, call: ApiCall, code: int, response: bytes, *, now: float) -> None:
        """Write a line; `response` is empty where a request was refused."""
        if _is_logged(call.route.kind):
            self._file.write(_encode(_line(call, code, response, now=now)) + b"\n")


def _is_logged(kind: ResourceKind) -> bool:
    return kind.group in _GROUPS if kind.group else kind.plural in _CORE


def _line(call: ApiCall, code: int, response: bytes, *, now: float) -> dict[str, Any]:
    route, request = call.route, call.request
    time = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    query = f"?{urlencode(request.query)}" if request.query else ""
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "stage": "ResponseComplete",
        "requestURI": f"{request.path}{query}",
        "verb": _VERBS.get(call.verb, call.verb),
        "user": {"username": call.user},
        "userAgent": request.headers.get("user-agent", ""),
        "objectRef": {
            "resource": route.kind.plural,
            "namespace": route.namespace,
            "name": route.name,
            "apiGroup": route.kind.group,
            "apiVersion": route.kind.version,
            "subresource": route.subresource,
        },
        "responseStatus": {"code": code},
        "requestObject": _object(request.body),
        "responseObject": _object(response),
        "requestReceivedTimestamp": time,
        "stageTimestamp": time,
    }


def _object(body: bytes) -> Any:
    """Return a body as the log has it; nothing where it is empty, or is no JSON."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
