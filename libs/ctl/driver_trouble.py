"""What keeps the new driver of a node in flight from running, as its pod shows it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.paths import DRIVER_CONTAINER
from libs.fleet.node import FleetNode
from libs.kube.views import ContainerStatus, Pod

_BACKS_OFF: Final = "CrashLoopBackOff"
_STARTING: Final = frozenset(("ContainerCreating", "PodInitializing", ""))


def starts_driver(row: FleetNode) -> bool:
    """Whether an operation waits for the node's driver to start."""
    return row.in_flight and row.state == UpgradeState.POD_RESTART_REQUIRED


def driver_trouble(pods: Iterable[Pod], record: NodeRecord | None) -> str:
    """Return why the driver of a node does not run, in a few words; empty: its pods show nothing.

    What happened before the operation, as its record knows, is not counted.
    """
    before = (record.restarts_before if record is not None else None) or {}
    return next(filter(None, (_of_pod(each, before) for each in pods)), "")


def _of_pod(pod: Pod, before: Mapping[str, int]) -> str:
    """Return why one driver pod does not run; one that is being deleted is the old driver's."""
    status = pod.status
    if pod.metadata.deletion_timestamp:
        return ""
    for container in (*status.init_container_statuses, *status.container_statuses):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in (*_STARTING, _BACKS_OFF):
            return f"driver pod: {waiting.reason}"
        exits = _exits(container) - before.get(pod.metadata.uid, 0)
        ended = container.state.terminated or container.last_state.terminated
        if ended is None or not ended.exit_code or container.ready or exits <= 0:
            continue
        is_driver = container.name == DRIVER_CONTAINER
        name = "driver" if is_driver else f"container {container.name} of the driver pod"
        times = "" if exits == 1 else f", {exits} times"
        return f"{name} exited with code {ended.exit_code}{times}"
    return ""


def _exits(container: ContainerStatus) -> int:
    """Return how often it has ended: once before each restart, and once if it does not run."""
    return container.restart_count + (container.state.running is None)
