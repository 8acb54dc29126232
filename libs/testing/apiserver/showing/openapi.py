"""The part of OpenAPI that kubectl reads before it writes: that the server checks fields itself.

Without it `kubectl create` and `apply` would want whole schemas, to check fields before they send
anything. There are no schemas here, and `kubectl explain` says so.
"""

from collections.abc import Sequence
from typing import Any

from libs.testing.apiserver.kinds import Kind

_ROOT = "openapi/v3"


def answer(path: str, kinds: Sequence[Kind]) -> dict[str, Any] | None:
    """What there is to say at this path; None where there is nothing."""
    path = path.strip("/")
    places = {_place(kind) for kind in kinds}
    if path == _ROOT:
        urls = {place: {"serverRelativeURL": f"/{_ROOT}/{place}"} for place in sorted(places)}
        return {"paths": urls}
    place = path.removeprefix(f"{_ROOT}/")
    if place == path or place not in places:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "simulated"},
        "paths": {
            f"/{place}/{kind.plural}/{{name}}": {"patch": _patch(kind)}
            for kind in kinds
            if _place(kind) == place and "patch" in kind.verbs
        },
        "components": {"schemas": {}},
    }


def _place(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _patch(kind: Kind) -> dict[str, Any]:
    return {
        "parameters": [{"name": "fieldValidation", "in": "query"}],
        "responses": {},
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
        },
    }
