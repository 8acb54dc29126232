"""Versions of a DaemonSet's template: which is current, which may be deleted. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from libs.testing.cluster.daemonsets.plan import HASH_LABEL
from libs.testing.cluster.templates import Plain, labels_of, owned_by
from libs.testing.cluster.views import ControllerRevision, DaemonSet, Pod

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Letters and digits that form no words."""


class MissingRevision(msgspec.Struct, frozen=True):
    """No revision has the current template: create this one."""

    wanted: dict[str, Any]
    hash: str


class OutdatedRevision(msgspec.Struct, frozen=True):
    """The template's revision is not the newest (a rollback): renumber it."""

    revision: ControllerRevision
    number: int


class CurrentRevision(msgspec.Struct, frozen=True):
    revision: ControllerRevision


RevisionState = MissingRevision | OutdatedRevision | CurrentRevision


def template_hash(template: Mapping[str, Any], *, collisions: int = 0) -> str:
    """Return ten characters, equal for equal templates, valid in names and labels."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    if collisions:
        text += str(collisions)
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:10])


def find_revision(daemon_set: DaemonSet, history: Sequence[ControllerRevision]) -> RevisionState:
    """Find the revision of the current template."""
    data = _revision_data(daemon_set)
    newest = max((each.revision for each in history), default=0)
    same = [each for each in history if each.data == data]
    if not same:
        return _missing_revision(daemon_set, number=newest + 1)
    current = max(same, key=lambda each: each.revision)
    if current.revision < newest:
        return OutdatedRevision(current, newest + 1)
    return CurrentRevision(current)


def collides(daemon_set: DaemonSet, existing: ControllerRevision) -> bool:
    """Whether the existing revision of the wanted name has another template."""
    return existing.data != _revision_data(daemon_set)


def hash_of(revision: ControllerRevision) -> str:
    return revision.metadata.labels.get(HASH_LABEL, "")


def forgettable(
    daemon_set: DaemonSet,
    history: Sequence[ControllerRevision],
    pods: Sequence[Pod],
    *,
    current: str,
) -> list[ControllerRevision]:
    """Return the oldest revisions beyond the history limit that no pod uses."""
    live = {pod.metadata.labels.get(HASH_LABEL, "") for pod in pods} | {current}
    old = [each for each in history if hash_of(each) not in live]
    excess = len(old) - daemon_set.spec.revision_history_limit
    return sorted(old, key=lambda each: each.revision)[: max(0, excess)]


def _revision_data(daemon_set: DaemonSet) -> dict[str, Any]:
    return {"spec": {"template": {**daemon_set.spec.template, "$patch": "replace"}}}


def _missing_revision(daemon_set: DaemonSet, *, number: int) -> MissingRevision:
    meta = daemon_set.metadata
    template = daemon_set.spec.template
    found = template_hash(template, collisions=daemon_set.status.collision_count)
    wanted: Plain = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{meta.name}-{found}",
            "namespace": meta.namespace,
            "labels": {**labels_of(template), HASH_LABEL: found},
            "annotations": meta.annotations,
            "ownerReferences": [owned_by("DaemonSet", meta)],
        },
        "data": _revision_data(daemon_set),
        "revision": number,
    }
    return MissingRevision(wanted, found)
