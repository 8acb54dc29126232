"""As whom a pod speaks to the server: its service account, and the token that admission mounts.

Pure. Must not know where accounts are kept, nor whether one is there.
"""

from collections.abc import Mapping
from typing import Any

from libs.testing.apiserver.objects.parts import Thing, items, part

DEFAULT = "default"

_VOLUME = "kube-api-access-"
_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECONDS = 3607
"""An hour, and so much more that the server can tell its own tokens from others."""


def name(pod: Mapping[str, Any]) -> str:
    """Of its account."""
    return part(pod, "spec").get("serviceAccountName") or DEFAULT


def speak(pod: Thing, *, as_: str, account: Mapping[str, Any], suffix: str) -> None:
    """Name the account, and mount its token where neither pod nor account has forbidden it.

    Replaces whole parts of the pod: what is in them may be somebody else's too.
    """
    spec: Thing = {**part(pod, "spec"), "serviceAccountName": as_, "serviceAccount": as_}
    pod["spec"] = spec
    allowed = spec.get("automountServiceAccountToken")
    if allowed is None:
        allowed = account.get("automountServiceAccountToken")
    if allowed is not False:
        _mount(spec, suffix)


def _mount(spec: Thing, suffix: str) -> None:
    volumes = items(spec, "volumes")
    there = [each["name"] for each in volumes if each["name"].startswith(_VOLUME)]
    volume = there[0] if there else _VOLUME + suffix
    mount = {"name": volume, "readOnly": True, "mountPath": _MOUNT}
    needed = False
    for kind in ("initContainers", "containers"):
        given = items(spec, kind)
        mounted = [each if _mounted(each) else _with(each, mount) for each in given]
        if mounted != given:
            spec[kind], needed = mounted, True
    if needed and not there:
        spec["volumes"] = [*volumes, _token(volume)]


def _mounted(container: Thing) -> bool:
    return any(each.get("mountPath") == _MOUNT for each in items(container, "volumeMounts"))


def _with(container: Thing, mount: Thing) -> Thing:
    return {**container, "volumeMounts": [*items(container, "volumeMounts"), mount]}


def _token(volume: str) -> Thing:
    here = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    certificate = {"key": "ca.crt", "path": "ca.crt"}
    sources: list[Thing] = [
        {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [certificate]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": here}]}},
    ]
    return {"name": volume, "projected": {"sources": sources, "defaultMode": 420}}
