"""Models of how long operations on machines take and how they end.

Stages and simulated machines ask a `WorldModel` instead of drawing numbers themselves. The same
question always has the same answer.
"""

from typing import Protocol

import msgspec

VALIDATION_STEPS = ("driver", "toolkit", "cuda", "plugin")


class TimeSpan(msgspec.Struct, frozen=True):
    """A duration; None: it never ends."""

    seconds: float | None


class ProcessEnd(msgspec.Struct, frozen=True):
    """Time until a process ends by itself, and its exit code; None: it runs until it is stopped."""

    after: float | None
    exit_code: int = 0


class ValidationEnd(msgspec.Struct, frozen=True):
    """Time until a validation ends, and the failed step; None: it hangs."""

    after: float | None
    failed: str = ""
    """Empty: the validation passed."""


NEVER = TimeSpan(None)
RUNS_FOREVER = ProcessEnd(None)


class WorldModel(Protocol):
    """A model of machines and of the workloads on them.

    A workload is the name of the owner of a pod (a DaemonSet, a Job). An attempt counts, from 0,
    the starts of that container of that workload on that node over all of its pods; or the unloads,
    loads or validations on that node. A driver is named by its node label or by its target,
    consistently by one caller. Names of pods are unique.
    """

    # Questions of kubelets.

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        """Return the time from the container's turn until it can start, mostly the image pull."""
        ...

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        """Return the time from a container's start until it is ready."""
        ...

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """Return the end of a container that is meant to run forever."""
        ...

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        """Return the time from the stop request to the container's end, if its grace period allows.

        In a pod the slowest container counts.
        """
        ...

    # Further questions of upgrades.

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        """Return the end of unloading the kernel modules; exit code not 0: they are in use."""
        ...

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        """Return the time from the start of a driver, after the image pull, until it works or
        fails.
        """
        ...

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        """Return the end of the validator's chain, for a driver that loaded successfully."""
        ...

    def refusal(self, pod: str) -> TimeSpan:
        """Return how long a disruption budget refuses the eviction, from the first request on."""
        ...

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        """Return the time from an accepted eviction until the pod is gone from the API."""
        ...

    def remainder(self, pod: str, age: float, kind: str = "") -> TimeSpan:
        """Return the remaining time of a job of this kind that has run for `age` seconds.

        For callers that see a pod without its end; ask once, at the age at which the pod was seen.
        """
        ...
