"""Read a plain kubeconfig without the library that knows all ways to authenticate.

That library takes half a second and 40 MiB to import. A file whose user has a token, certificate
files or nothing needs none of it; any other is left to `libs.kube.config`.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from libs.kube.config import ClusterConfig

_PLAIN_USER: Final = frozenset({"token", "client-certificate", "client-key"})
_PLAIN_CLUSTER: Final = frozenset(
    {"server", "certificate-authority", "insecure-skip-tls-verify", "tls-server-name", "proxy-url"}
)

Entry = Mapping[str, Any]


def kubeconfig_path(given: str, environ: Mapping[str, str]) -> Path | None:
    """Return the one file to read; None where it is not one file."""
    if given:
        return Path(given)
    if listed := environ.get("KUBECONFIG", ""):
        return None if os.pathsep in listed else Path(listed).expanduser()
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"


def read_plain(path: Path) -> ClusterConfig | None:
    """Return the configuration of a plain file; None if the library has to read it."""
    import yaml

    try:
        content: Any = yaml.safe_load(path.read_text())
        return plain_config(content, folder=path.absolute().parent)
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return None  # the library's errors name the file and the place


def plain_config(content: Any, *, folder: Path) -> ClusterConfig | None:
    """Return the configuration that the current context names; None if it is not plain."""
    try:
        context = _entry(content, "contexts", "context", content["current-context"])
        cluster = _entry(content, "clusters", "cluster", context["cluster"])
        user = _entry(content, "users", "user", context["user"])
    except (KeyError, TypeError, StopIteration):
        return None
    if not (cluster.get("server") and user.keys() <= _PLAIN_USER):
        return None
    if not cluster.keys() <= _PLAIN_CLUSTER:
        return None
    token = str(user.get("token") or "")
    return ClusterConfig(
        url=str(cluster["server"]),
        token=f"Bearer {token}" if token else "",
        ca_file=_file(cluster, "certificate-authority", folder),
        cert_file=_file(user, "client-certificate", folder),
        key_file=_file(user, "client-key", folder),
        verify=not cluster.get("insecure-skip-tls-verify"),
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or ""),
    )


def context_namespace(given: str, environ: Mapping[str, str]) -> str:
    """Return the namespace of the current context; empty if none is named, or nothing can be read.

    Of several files the first that says something counts, as for kubectl.
    """
    import yaml

    path = kubeconfig_path(given, environ)
    listed = [Path(each) for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    contents: list[Any] = []
    for each in [path] if path is not None else listed:
        with suppress(OSError, yaml.YAMLError, UnicodeDecodeError):
            contents.append(yaml.safe_load(each.read_text()))
    for content in contents:
        with suppress(KeyError, TypeError, StopIteration):
            current = next(each["current-context"] for each in contents)
            return str(_entry(content, "contexts", "context", current).get("namespace") or "")
    return ""


def _entry(content: Entry, plural: str, kind: str, name: str) -> Entry:
    found: Any = next(each for each in content[plural] if each["name"] == name).get(kind) or {}
    if not isinstance(found, Mapping):
        raise TypeError(kind)
    return cast(Entry, found)


def _file(entry: Entry, field: str, folder: Path) -> str:
    path = str(entry.get(field) or "")
    return str(folder / path) if path else ""
