"""What the server does with objects of one kind: fills in, keeps, admits and refuses.

Everything here works in place on an object that nobody else holds, or only looks. Kinds without a
line in `strategy` are ordinary: whatever they hold is kept.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, ClassVar

from libs.testing.apiserver.kinds import names
from libs.testing.apiserver.kinds.names import Cause
from libs.testing.apiserver.kinds.status_errors import bad_request, invalid_value, required
from libs.testing.apiserver.objects.encoding import encoded
from libs.testing.apiserver.objects.json_access import (
    JsonObject,
    ensure_map,
    get_map,
    get_maps,
    get_strings,
)

_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[-+]\d\d:\d\d)")


class KindStrategy:
    """Of an ordinary kind."""

    keeps_status = False
    """Whether a create may bring its status."""
    shares_metadata = True
    """Whether a write of the status may change labels and annotations too."""
    returns_deleted = False
    """Whether the answer of a delete is the object."""

    def validate_name(self, name: str) -> str:
        """Why the object cannot be called so; empty where it can."""
        return names.validate_subdomain(name)

    def set_defaults(self, thing: JsonObject) -> None:
        """What whoever writes the object has written too, though he did not say it."""

    def prepare_for_update(self, new: JsonObject, old: Mapping[str, Any]) -> None:
        """What a write of the object leaves as it was."""

    def prepare_for_create(self, thing: JsonObject) -> None:
        """What a new object has that nobody wrote; may replace only whole parts of it."""

    def generation_fields(self, thing: Mapping[str, Any]) -> object:
        """What `metadata.generation` counts the changes of."""
        return thing.get("spec")

    def has_finalizers(self, thing: Mapping[str, Any]) -> bool:
        """Whether somebody still has to let it go."""
        return bool(get_strings(thing, "metadata", "finalizers"))

    def validate(self, thing: Mapping[str, Any]) -> list[Cause]:  # noqa: ARG002  (most have none)
        """What is wrong with it, beside its metadata."""
        return []

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:  # noqa: ARG002
        """What a write changes and must not."""
        return []


class NodeStrategy(KindStrategy):
    """A node comes with the status that its kubelet gives it, and not ready."""

    keeps_status = True
    _NOT_READY: ClassVar[JsonObject] = {
        "key": "node.kubernetes.io/not-ready",
        "effect": "NoSchedule",
    }

    def set_defaults(self, thing: JsonObject) -> None:
        """Old and new form of the pods' range."""
        spec = ensure_map(thing, "spec")
        if spec.get("podCIDR") and not spec.get("podCIDRs"):
            spec["podCIDRs"] = [spec["podCIDR"]]

    def prepare_for_create(self, thing: JsonObject) -> None:
        """The taint that admission puts on every new node."""
        spec, taints = dict(get_map(thing, "spec")), get_maps(thing, "spec", "taints")
        if not any(_place(taint) == _place(self._NOT_READY) for taint in taints):
            spec["taints"] = [*taints, self._NOT_READY]
        thing["spec"] = spec

    def validate(self, thing: Mapping[str, Any]) -> list[Cause]:
        """Taints that are none, or there twice."""
        found: list[Cause] = []
        seen: set[tuple[str, str]] = set()
        for place, taint in enumerate(get_maps(thing, "spec", "taints")):
            field = f"spec.taints[{place}]"
            effect = taint.get("effect", "")
            if why := names.validate_qualified_name(taint.get("key", "")):
                found.append(invalid_value(f"{field}.key", taint.get("key", ""), why))
            if not effect:
                found.append(required(f"{field}.effect", ""))
            if _place(taint) in seen:
                found.append(_twice(taint, place))
            seen.add(_place(taint))
        return found


def _twice(taint: Mapping[str, Any], place: int) -> Cause:
    shown = {
        "Key": taint.get("key", ""),
        "Value": taint.get("value", ""),
        "Effect": taint.get("effect", ""),
        "TimeAdded": taint.get("timeAdded"),
    }
    words = f"{encoded(shown).decode()}: taints must be unique by key and effect pair"
    return {
        "reason": "FieldValueDuplicate",
        "message": f"Duplicate value: {words}",
        "field": f"metadata.taints[{place}]",  # so says the real one
    }


def _place(taint: Mapping[str, Any]) -> tuple[str, str]:
    return (taint.get("key", ""), taint.get("effect", ""))


class NamespaceStrategy(KindStrategy):
    """A namespace stays until whoever empties it takes its finalizer away."""

    returns_deleted = True

    def validate_name(self, name: str) -> str:
        """One part of a domain."""
        return names.validate_label(name)

    def set_defaults(self, thing: JsonObject) -> None:
        """Its own name as a label."""
        metadata = thing["metadata"]
        own = {"kubernetes.io/metadata.name": metadata["name"]}
        metadata["labels"] = {**get_map(metadata, "labels"), **own}

    def prepare_for_create(self, thing: JsonObject) -> None:
        """The finalizer of the namespace controller."""
        thing["spec"] = {"finalizers": ["kubernetes"]}
        thing["status"] = {"phase": "Active"}

    def prepare_for_update(self, new: JsonObject, old: Mapping[str, Any]) -> None:
        """Only `/finalize` changes its spec."""
        new["spec"] = get_map(old, "spec")

    def has_finalizers(self, thing: Mapping[str, Any]) -> bool:
        """It has finalizers of its own kind too."""
        return super().has_finalizers(thing) or bool(get_strings(thing, "spec", "finalizers"))


class ServiceStrategy(KindStrategy):
    """A service gets an address nobody else has; it is never reached."""

    returns_deleted = True

    def __init__(self) -> None:
        self._given = 0

    def validate_name(self, name: str) -> str:
        """One part of a domain."""
        return names.validate_label(name)

    def set_defaults(self, thing: JsonObject) -> None:
        """Types and ports."""
        spec = ensure_map(thing, "spec")
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in get_maps(spec, "ports"):
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))

    def prepare_for_update(self, new: JsonObject, old: Mapping[str, Any]) -> None:
        """Its address."""
        before = get_map(old, "spec")
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if name in before:
                new["spec"].setdefault(name, before[name])

    def prepare_for_create(self, thing: JsonObject) -> None:
        """Its address."""
        spec = dict(get_map(thing, "spec"))
        if not spec.get("clusterIP"):
            self._given += 1
            spec["clusterIP"] = f"10.0.{self._given // 250}.{self._given % 250 + 1}"
        spec["clusterIPs"] = [spec["clusterIP"]]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        thing["spec"] = spec
        thing["status"] = {"loadBalancer": {}}


class EventStrategy(KindStrategy):
    """An event belongs into the namespace of what it is about."""

    def validate(self, thing: Mapping[str, Any]) -> list[Cause]:
        """Another namespace than its object's."""
        about: str = get_map(thing, "involvedObject").get("namespace") or "default"
        if about != thing["metadata"].get("namespace", ""):
            field = "involvedObject.namespace"
            return [invalid_value(field, about, "does not match event.namespace")]
        return []


class SecretStrategy(KindStrategy):
    """A secret's plain texts are kept encoded."""

    def set_defaults(self, thing: JsonObject) -> None:
        """Type, and stringData into data."""
        thing.setdefault("type", "Opaque")
        texts: dict[str, str] = thing.pop("stringData", None) or {}
        if texts:
            data = thing["data"] = dict(get_map(thing, "data"))
            for key, text in texts.items():
                data[key] = b64encode(text.encode()).decode()


class ServiceAccountStrategy(KindStrategy):
    """An identity for pods."""

    returns_deleted = True


class LeaseStrategy(KindStrategy):
    """A lease that lasts some time."""

    def set_defaults(self, thing: JsonObject) -> None:
        """Nothing; but times without microseconds are none here."""
        spec = get_map(thing, "spec")
        for name in ("acquireTime", "renewTime"):
            time = spec.get(name)
            if time is not None and not _MICRO_TIME.fullmatch(str(time)):
                raise bad_request(
                    'Lease in version "v1" cannot be handled as a Lease: parsing time '
                    f'"{time}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse it'
                )

    def validate(self, thing: Mapping[str, Any]) -> list[Cause]:
        """Durations and counts that make no sense."""
        spec = get_map(thing, "spec")
        found: list[Cause] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            field = "spec.leaseDurationSeconds"
            found.append(invalid_value(field, duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            field = "spec.leaseTransitions"
            found.append(invalid_value(field, transitions, "must be greater than or equal to 0"))
        return found


class RoleStrategy(KindStrategy):
    """What may be done, and by whom. Kept, never asked."""

    def validate_name(self, name: str) -> str:
        """Anything that can stand in a path."""
        return names.validate_path_segment(name)

    def set_defaults(self, thing: JsonObject) -> None:
        """The API groups of references."""
        group = "rbac.authorization.k8s.io"
        get_map(thing, "roleRef").setdefault("apiGroup", group)
        for subject in get_maps(thing, "subjects"):
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", group)

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        """Another role for the same binding."""
        if new.get("roleRef") != old.get("roleRef"):
            return [invalid_value("roleRef", str(new.get("roleRef")), "cannot change roleRef")]
        return []


class CustomObjectStrategy(KindStrategy):
    """An object of a custom kind: its schema has judged it."""

    shares_metadata = False

    def __init__(self, *, status: bool) -> None:
        self._status = status

    def generation_fields(self, thing: Mapping[str, Any]) -> object:
        """Everything but metadata, and but for the status where that is written apart."""
        aside = {"metadata", "apiVersion", "kind", *(("status",) if self._status else ())}
        return {key: value for key, value in thing.items() if key not in aside}
