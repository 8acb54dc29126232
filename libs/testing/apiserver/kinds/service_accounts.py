"""Admission of a pod's service account: its name, and the token volume that is mounted."""

from collections.abc import Mapping
from typing import Any

from libs.testing.apiserver.objects.json_access import JsonObject, get_map, get_maps

DEFAULT = "default"

_VOLUME = "kube-api-access-"
_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECONDS = 3607
"""An hour and 7 s, by which a real server recognizes its own tokens."""


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
        given = get_maps(spec, kind)
        mounted = [each if _mounted(each) else _with(each, mount) for each in given]
        if mounted != given:
            spec[kind], needed = mounted, True
    if needed and not existing:
        spec["volumes"] = [*volumes, _token(volume)]


def _mounted(container: JsonObject) -> bool:
    return any(each.get("mountPath") == _MOUNT for each in get_maps(container, "volumeMounts"))


def _with(container: JsonObject, mount: JsonObject) -> JsonObject:
    return {**container, "volumeMounts": [*get_maps(container, "volumeMounts"), mount]}


def _token(volume: str) -> JsonObject:
    here = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    certificate = {"key": "ca.crt", "path": "ca.crt"}
    sources: list[JsonObject] = [
        {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [certificate]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": here}]}},
    ]
    return {"name": volume, "projected": {"sources": sources, "defaultMode": 420}}
