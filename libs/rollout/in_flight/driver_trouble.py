"""What is wrong with the driver pod of a node in flight: why it fails, in words for people."""

from typing import Final

from libs.contracts.diagnoses import describe
from libs.contracts.node import Operation
from libs.contracts.waits import DRIVER_ADMINISTRATOR, WaitCode
from libs.rollout import limits
from libs.rollout.decision import Wait
from libs.rollout.in_flight.in_flight_node import InFlightNode, state_wait
from libs.rollout.views.machine import DriverPod

_PERMANENT: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Waiting reasons of the kubelet that do not go away by themselves."""


def driver_failure(f: InFlightNode) -> str:
    """Return why the new driver pod will never run; empty: it may."""
    pod = f.new_pod
    if pod is None:
        return ""
    if pod.trouble.partition(":")[0] in _PERMANENT:
        return pod.trouble
    restarts = _restarts(f, pod)
    if restarts >= limits.RESTARTS:
        return (
            f"the driver container restarted {restarts} times{_in_brackets(f, pod.problem('it'))}"
        )
    return ""


def restart_text(f: InFlightNode) -> str:
    """Return that the driver restarted under this lease, in brackets; empty if it did not."""
    pod = f.new_pod
    restarts = 0 if pod is None else _restarts(f, pod)
    if pod is None or restarts <= 0:
        return ""
    times = "once" if restarts == 1 else f"{restarts} times"
    ended = f": it {pod.last_exit}" if pod.last_exit else ""
    return f" (the driver container restarted {times}{ended})"


def trouble_text(f: InFlightNode) -> str:
    """Return why the driver does not run, in brackets: what is wrong by name, then the kubelet."""
    return _in_brackets(f, "" if f.new_pod is None else f.new_pod.problem())


def _in_brackets(f: InFlightNode, problem: str) -> str:
    known = "; ".join(filter(None, (describe(f.node.obstacle), problem)))
    return f" ({known})" if known else ""


def start_wait(f: InFlightNode, detail: str) -> Wait:
    """Return the wait for the driver to start: a person looks at one that fails."""
    who = DRIVER_ADMINISTRATOR if trouble_text(f) else None
    return state_wait(f, WaitCode.DRIVER_START, detail, who=who)


def _restarts(f: InFlightNode, pod: DriverPod) -> int:
    """Return how often the driver container restarted since the operation began."""
    before = f.record.restarts_before
    if before is None:  # the record is of an earlier release, which counted only those of new pods
        return 0 if f.record.operation is Operation.VALIDATE else pod.restarts
    return pod.restarts - before.get(pod.uid, 0)
