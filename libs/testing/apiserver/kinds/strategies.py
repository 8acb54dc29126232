"""Defaults, validation and kept fields of objects, by kind.

Every function that changes an object works in place, on a copy that is not shared.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from libs.testing.apiserver.kinds import names
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.objects.json import (
    JsonObject,
    encoded,
    ensure_map,
    get_map,
    get_maps,
    get_strings,
)
from libs.testing.apiserver.status import Cause, cause, invalid, required

_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[-+]\d\d:\d\d)")


class KindStrategy:
    """The strategy of an ordinary kind: everything is stored as it was sent."""

    keeps_status = False
    """Whether a create may set the status."""
    shares_metadata = True
    """Whether a write of the status may change labels and annotations too."""
    returns_deleted = False
    """Whether the response to a delete is the object."""

    def validate_name(self, name: str) -> str:
        """Return why the name is invalid; empty where it is valid."""
        return names.validate_subdomain(name)

    def set_defaults(self, obj: JsonObject) -> None:
        """Set the defaults that belong to the writer's own fields."""

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Set the fields that no writer owns; parts are replaced, not changed in place."""

    def prepare_for_update(self, new: JsonObject, old: Mapping[str, Any]) -> None:
        """Restore what a write of the object may not change."""

    def generation_fields(self, obj: Mapping[str, Any]) -> object:
        """Return the part whose changes `metadata.generation` counts."""
        return obj.get("spec")

    def has_finalizers(self, obj: Mapping[str, Any]) -> bool:
        return bool(get_strings(obj, "metadata", "finalizers"))

    def validate(self, obj: Mapping[str, Any]) -> list[Cause]:  # noqa: ARG002  (most have none)
        return []

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:  # noqa: ARG002
        return []


class NodeStrategy(KindStrategy):
    keeps_status = True
    _NOT_READY: ClassVar[JsonObject] = {
        "key": "node.kubernetes.io/not-ready",
        "effect": "NoSchedule",
    }

    def set_defaults(self, obj: JsonObject) -> None:
        spec = ensure_map(obj, "spec")
        if spec.get("podCIDR") and not spec.get("podCIDRs"):
            spec["podCIDRs"] = [spec["podCIDR"]]

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Add the taint that admission puts on every new node."""
        spec, taints = dict(get_map(obj, "spec")), get_maps(obj, "spec", "taints")
        if not any(_taint_key(taint) == _taint_key(self._NOT_READY) for taint in taints):
            spec["taints"] = [*taints, self._NOT_READY]
        obj["spec"] = spec

    def validate(self, obj: Mapping[str, Any]) -> list[Cause]:
        found: list[Cause] = []
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(get_maps(obj, "spec", "taints")):
            field = f"spec.taints[{index}]"
            if why := names.validate_qualified_name(taint.get("key", "")):
                found.append(invalid(f"{field}.key", taint.get("key", ""), why))
            if not taint.get("effect"):
                found.append(required(f"{field}.effect"))
            if _taint_key(taint) in seen:
                found.append(_duplicate_taint(taint, index))
            seen.add(_taint_key(taint))
        return found


def _duplicate_taint(taint: Mapping[str, Any], index: int) -> Cause:
    shown = {
        "Key": taint.get("key", ""),
        "Value": taint.get("value", ""),
        "Effect": taint.get("effect", ""),
        "TimeAdded": taint.get("timeAdded"),
    }
    why = f"{encoded(shown).decode()}: taints must be unique by key and effect pair"
    # A real server names metadata here too.
    return cause("FieldValueDuplicate", f"metadata.taints[{index}]", f"Duplicate value: {why}")


def _taint_key(taint: Mapping[str, Any]) -> tuple[str, str]:
    return (taint.get("key", ""), taint.get("effect", ""))


class ServiceStrategy(KindStrategy):
    """Fills in defaults; no address is assigned."""

    returns_deleted = True

    def set_defaults(self, obj: JsonObject) -> None:
        spec = ensure_map(obj, "spec")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in get_maps(spec, "ports"):
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))


class NamespaceStrategy(KindStrategy):
    """A namespace stays: its deletion is not simulated."""

    def validate_name(self, name: str) -> str:
        return names.validate_label(name)

    def set_defaults(self, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        own = {"kubernetes.io/metadata.name": metadata["name"]}
        metadata["labels"] = {**get_map(metadata, "labels"), **own}

    def prepare_for_create(self, obj: JsonObject) -> None:
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def prepare_for_update(self, new: JsonObject, old: Mapping[str, Any]) -> None:
        new["spec"] = get_map(old, "spec")


class EventStrategy(KindStrategy):
    def validate(self, obj: Mapping[str, Any]) -> list[Cause]:
        """Refuse an event outside the namespace of its involved object."""
        about: str = get_map(obj, "involvedObject").get("namespace") or "default"
        if about != obj["metadata"].get("namespace", ""):
            return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
        return []


class SecretStrategy(KindStrategy):
    def set_defaults(self, obj: JsonObject) -> None:
        obj.setdefault("type", "Opaque")


class ServiceAccountStrategy(KindStrategy):
    returns_deleted = True


class LeaseStrategy(KindStrategy):
    def set_defaults(self, obj: JsonObject) -> None:
        """Refuse times without microseconds, as a real server's decoder does."""
        spec = get_map(obj, "spec")
        for name in ("acquireTime", "renewTime"):
            time = spec.get(name)
            if time is not None and not _MICRO_TIME.fullmatch(str(time)):
                raise bad_request(
                    'Lease in version "v1" cannot be handled as a Lease: parsing time '
                    f'"{time}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse it'
                )

    def validate(self, obj: Mapping[str, Any]) -> list[Cause]:
        spec = get_map(obj, "spec")
        found: list[Cause] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            field = "spec.leaseDurationSeconds"
            found.append(invalid(field, duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            field = "spec.leaseTransitions"
            found.append(invalid(field, transitions, "must be greater than or equal to 0"))
        return found


class RoleStrategy(KindStrategy):
    """Roles and bindings are stored and never enforced."""

    def validate_name(self, name: str) -> str:
        return names.validate_path_segment(name)

    def set_defaults(self, obj: JsonObject) -> None:
        group = "rbac.authorization.k8s.io"
        get_map(obj, "roleRef").setdefault("apiGroup", group)
        for subject in get_maps(obj, "subjects"):
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", group)

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        if new.get("roleRef") != old.get("roleRef"):
            return [invalid("roleRef", str(new.get("roleRef")), "cannot change roleRef")]
        return []


class CustomObjectStrategy(KindStrategy):
    """The strategy of every custom kind: its schema validates its objects."""

    shares_metadata = False

    def __init__(self, *, status: bool) -> None:
        self._status = status

    def generation_fields(self, obj: Mapping[str, Any]) -> object:
        """Return all fields except metadata, and except the status if it is a subresource."""
        excluded = {"metadata", "apiVersion", "kind", *(("status",) if self._status else ())}
        return {key: value for key, value in obj.items() if key not in excluded}


DEFAULT = "default"

_VOLUME = "kube-api-access-"
_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECONDS = 3607
"""An hour and 7 s: the value by which a real server recognizes its own tokens."""


def account_name(pod: Mapping[str, Any]) -> str:
    return get_map(pod, "spec").get("serviceAccountName") or DEFAULT


def mount_service_account(
    pod: JsonObject, *, as_: str, account: Mapping[str, Any], suffix: str
) -> None:
    """Set the account, and mount its token unless pod or account opt out.

    Replaces the changed parts of the pod, which other objects may share.
    """
    spec: JsonObject = {**get_map(pod, "spec"), "serviceAccountName": as_, "serviceAccount": as_}
    pod["spec"] = spec
    allowed = spec.get("automountServiceAccountToken")
    if allowed is None:
        allowed = account.get("automountServiceAccountToken")
    if allowed is not False:
        _mount(spec, suffix)


def _mount(spec: JsonObject, suffix: str) -> None:
    volumes = get_maps(spec, "volumes")
    existing = [each["name"] for each in volumes if each["name"].startswith(_VOLUME)]
    volume = existing[0] if existing else _VOLUME + suffix
    mount = {"name": volume, "readOnly": True, "mountPath": _MOUNT}
    needed = False
    for kind in ("initContainers", "containers"):
        containers = get_maps(spec, kind)
        mounted = [each if _has_token(each) else _with_mount(each, mount) for each in containers]
        if mounted != containers:
            spec[kind], needed = mounted, True
    if needed and not existing:
        spec["volumes"] = [*volumes, _token_volume(volume)]


def _has_token(container: JsonObject) -> bool:
    return any(each.get("mountPath") == _MOUNT for each in get_maps(container, "volumeMounts"))


def _with_mount(container: JsonObject, mount: JsonObject) -> JsonObject:
    return {**container, "volumeMounts": [*get_maps(container, "volumeMounts"), mount]}


def _token_volume(volume: str) -> JsonObject:
    namespace_field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    certificate = {"key": "ca.crt", "path": "ca.crt"}
    sources: list[JsonObject] = [
        {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [certificate]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace_field}]}},
    ]
    return {"name": volume, "projected": {"sources": sources, "defaultMode": 420}}
