"""The roles `uninstall` and `uninstall-kinds`: each runs once, then ends."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.errors import Conflict, Gone, KubeError, TooManyRequests, Unavailable
from libs.kube.requests import Transport
from libs.runtime import settings
from libs.runtime.clock import Clock, SystemClock
from libs.runtime.logs import LogSettings, configure, logger
from services.driver.uninstall.objects import MANAGER, Objects, remove_definitions
from services.driver.uninstall.operands import Operands, RemovalRefused, some_names

WITHIN: Final = 270.0
"""Seconds until the removal gives up, and names the nodes or pods that it waited for.

Helm gives up after 300, and then nobody would learn which.
"""
RETRY: Final = 2.0
"""Seconds until a request that may succeed later is repeated, with all steps before it."""

_log = logger()


class UninstallSettings(msgspec.Struct, frozen=True, kw_only=True):
    log: LogSettings = LogSettings()
    kubeconfig: str = ""
    """Path; empty: from the environment, or in-cluster."""
    namespace: str
    """Namespace of services and operands."""


async def uninstall(
    transport: Transport, *, namespace: str, clock: Clock, until: float
) -> Mapping[str, Sequence[str]]:
    """Remove agents, drivers and all traces of Sluice on nodes and at the API server.

    Return the nodes whose driver stays loaded, with the pods that use it. Raise `RemovalRefused`
    while a node is being changed, or when waiting has lasted `until`.
    """
    kube = Kube(transport, manager=MANAGER, clock=clock)
    operands = Operands(kube, namespace=namespace, clock=clock, until=until)
    objects = Objects(transport, namespace=namespace, clock=clock)
    while True:
        try:
            await operands.stop_services()
            await operands.remove()
            await objects.remove()
        except (Unavailable, Conflict, TooManyRequests, Gone) as error:
            if clock.monotonic() >= until:
                raise
            _log.warning("the removal begins again", why=str(error))
        else:
            return operands.in_use
        await clock.sleep(RETRY)


async def _uninstall(chosen: UninstallSettings, transport: Transport, clock: Clock) -> None:
    until = clock.monotonic() + WITHIN
    in_use = await uninstall(transport, namespace=chosen.namespace, clock=clock, until=until)
    _log.info("Sluice is removed, but for the objects of its chart")
    if in_use:
        pods = [f"{pod} on {node}" for node, some in in_use.items() for pod in some]
        _log.warning(
            f"the driver stays loaded on {some_names([*in_use])}, because pods use GPUs there:"
            f" {some_names(pods)}. Nothing is evicted: when they have ended, reboot the node or"
            " unload the modules there"
        )


async def _remove_kinds(_chosen: UninstallSettings, transport: Transport, clock: Clock) -> None:
    await remove_definitions(Kube(transport, manager=MANAGER, clock=clock))
    _log.info("the definitions are removed")


Work = Callable[[UninstallSettings, Transport, Clock], Awaitable[None]]


async def _run(chosen: UninstallSettings, work: Work) -> None:
    clock = SystemClock()
    configure(chosen.log, stream=sys.stderr, clock=clock)
    kubeconfig = Path(chosen.kubeconfig) if chosen.kubeconfig else None
    async with await open_transport(clock=clock, kubeconfig=kubeconfig) as transport:
        await work(chosen, transport, clock)


def _main(work: Work) -> int:
    """Run once; return the exit code: 1 after a failure, 2 for wrong settings."""
    try:
        asyncio.run(_run(settings.load(UninstallSettings, environ=os.environ), work))
    except settings.SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (KubeError, RemovalRefused) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def main() -> int:
    """Remove Sluice."""
    return _main(_uninstall)


def remove_kinds() -> int:
    """Remove the definitions of its kinds."""
    return _main(_remove_kinds)
