"""What both servers accept, beside the objects of `tests.builders.objects`."""

from collections.abc import Mapping

from tests.builders import objects
from tests.builders.objects import Manifest

SINCE = "2026-11-01T00:00:00Z"


def pod(
    name: str,
    *,
    node: str = "",
    labels: Mapping[str, str] | None = None,
    grace: int = 30,
) -> Manifest:
    """Return a pod bound to the node; no scheduler handles it."""
    meta = {"labels": dict(labels or {})}
    return objects.pod(name, node=node, grace=grace, meta=meta, schedulerName="nobody")


def condition(kind: str, status: str) -> Manifest:
    """Return a condition of a node or a pod."""
    return objects.condition(kind, status, lastTransitionTime=SINCE)


READY = {
    "phase": "Running",
    "conditions": [condition("Ready", "True"), condition("ContainersReady", "True")],
}
"""The status of a pod whose containers run and are ready."""
