"""As whom a pod speaks to the server: its service account, and the token that admission mounts.

Pure. Must not know where accounts are kept, nor whether one is there.
"""

from collections.abc import Mapping
from typing import Any

from libs.testing.apiserver.objects.json_access import JsonObject, get_map, get_maps

DEFAULT = "default"

_VOLUME = "kube-api-access-"
_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECONDS = 3607
"""An hour, and so much more that the server can tell its own tokens from others."""


def account_name(pod: Mapping[str, Any]) -> str:
    """Of its account."""
    return get_map(pod, "spec").get("serviceAccountName") or DEFAULT


def mount_service_account(
    pod: JsonObject, *, as_: str, account: Mapping[str, Any], suffix: str
) -> None:
    """Name the account, and mount its token where neither pod nor account has forbidden it.

    Replaces whole parts of the pod: what is in them may be somebody else's too.
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
    there = [each["name"] for each in volumes if each["name"].startswith(_VOLUME)]
    volume = there[0] if there else _VOLUME + suffix
    mount = {"name": volume, "readOnly": True, "mountPath": _MOUNT}
    needed = False
    for kind in ("initContainers", "containers"):
        given = get_maps(spec, kind)
        mounted = [each if _mounted(each) else _with(each, mount) for each in given]
        if mounted != given:
            spec[kind], needed = mounted, True
    if needed and not there:
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
