"""Drivers that ended by themselves on nodes in flight. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from libs.rollout.in_flight.in_flight_node import is_old_pod
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView

_PERSISTENT: Final = 2
"""Ends of a driver after which a plan assumes that it ends again: by chance one ends once."""


class Crashes(NamedTuple):
    """How often the new driver of a node in flight has ended by itself."""

    pod: DriverPod
    number: int

    @property
    def goes_on(self) -> bool:
        """Whether a plan assumes that it ends each time that it starts."""
        return self.number >= _PERSISTENT


def crashes_of(node: NodeView) -> Crashes | None:
    """Return the crashes of the new driver since the node's upgrade began; None: there were none.

    A driver that is ready has got over them.
    """
    record = node.current_record
    if record is None or node.upgrade_lease is None:
        return None
    before = record.restarts_before or {}
    for pod in node.driver_pods:
        if pod.ready or is_old_pod(record, pod):
            continue
        is_down = pod.started is None and pod.latest_exit != ""
        number = pod.restarts - before.get(pod.uid, 0) + is_down
        if number > 0:
            return Crashes(pod, number)
    return None


def crash_remarks(nodes: Iterable[NodeView]) -> Iterator[str]:
    """Yield what a plan assumes of each driver that has crashed."""
    for node in nodes:
        if (crashes := crashes_of(node)) is None:
            continue
        how = crashes.pod.latest_exit or "ended"
        times = "once" if crashes.number == 1 else f"{crashes.number} times"
        expected = "ends so each time" if crashes.goes_on else "loads the next time"
        yield f"The driver on {node.name} has {how}, {times}: the plan assumes that it {expected}."
