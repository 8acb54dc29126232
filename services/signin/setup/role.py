"""The role `setup`: reads the Secrets, and writes what is missing or must change, then ends."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from libs.kube.client import Kube, Preconditions
from libs.kube.connect import open_transport
from libs.kube.errors import KubeError, NotFound
from libs.kube.resources import Resource
from libs.kube.views import Object
from libs.runtime import settings
from libs.runtime.clock import SystemClock
from libs.runtime.logs import LogSettings, configure, logger
from services.signin.setup.contents import CA, SECRETS, Files, Unusable, Wanted, contents

MANAGER: Final = "sluice-setup"

_log = logger()


class SetupSettings(msgspec.Struct, frozen=True, kw_only=True):
    log: LogSettings = LogSettings()
    kubeconfig: str = ""
    """Path; empty: from the environment, or in-cluster."""
    namespace: str
    """Namespace of NATS and sign-in."""
    servers: Literal[1, 3] = 1
    """Servers of NATS."""
    nodes: int = 1000
    """Nodes to expect; it sets how many connections NATS accepts."""

    def wanted(self) -> Wanted:
        return Wanted(namespace=self.namespace, servers=self.servers, nodes=self.nodes)


class _Secret(Object, frozen=True, kw_only=True):
    data: dict[str, bytes] | None = None
    """Base64 on the wire."""

    def files(self) -> Files:
        texts = (self.data or {}).items()
        return {name: text.decode(errors="replace") for name, text in texts}


class _ConfigMap(Object, frozen=True, kw_only=True):
    data: dict[str, str] | None = None

    def files(self) -> Files:
        return self.data or {}


_KINDS: Final[Mapping[str, Resource[Any]]] = {
    **{name: Resource(plural="secrets", kind="Secret", view=_Secret) for name in SECRETS},
    CA: Resource(plural="configmaps", kind="ConfigMap", view=_ConfigMap),
}


async def set_up(kube: Kube, wanted: Wanted, *, now: float) -> list[str]:
    """Write what is missing or must change; return the names of the objects written."""
    present = {name: await _read(kube, name, namespace=wanted.namespace) for name in _KINDS}
    files = {name: found.files() for name, found in present.items() if found}
    content = contents(files, wanted, now=now)
    # Clients know a renewed CA before servers show what it signed.
    changed = [name for name in _KINDS if content[name] != files.get(name)]
    for name in sorted(changed, key=lambda name: name not in (CA, *SECRETS[:2])):
        found = present[name]
        await kube.apply(
            _KINDS[name],
            {"metadata": {"name": name}, "data": _data(name, content[name])},
            force=True,
            preconditions=_preconditions(found) if found else None,
            namespace=wanted.namespace,
        )
    return changed


async def _read(kube: Kube, name: str, *, namespace: str) -> Any:
    """Return the object; None if there is none."""
    try:
        return await kube.get(_KINDS[name], name, namespace=namespace)
    except NotFound:
        return None


def _data(name: str, files: Files) -> dict[str, Any]:
    """Return what an object has on the wire: a Secret, bytes as Base64."""
    return dict(files) if name == CA else {file: text.encode() for file, text in files.items()}


def _preconditions(found: Object) -> Preconditions:
    metadata = found.metadata
    return Preconditions(uid=metadata.uid, resource_version=metadata.resource_version)


async def _run(chosen: SetupSettings) -> None:
    clock = SystemClock()
    configure(chosen.log, stream=sys.stderr, clock=clock)
    kubeconfig = Path(chosen.kubeconfig) if chosen.kubeconfig else None
    async with await open_transport(clock=clock, kubeconfig=kubeconfig) as transport:
        kube = Kube(transport, manager=MANAGER, clock=clock)
        written = await set_up(kube, chosen.wanted(), now=clock.now())
    _log.info(
        "NATS and sign-in have what they need", written=written, kept=len(_KINDS) - len(written)
    )


def main() -> int:
    """Run once; return the exit code: 1 after a failure, 2 for wrong settings."""
    try:
        asyncio.run(_run(settings.load(SetupSettings, environ=os.environ)))
    except settings.SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (KubeError, Unusable) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
