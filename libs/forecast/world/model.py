"""What a world can be asked, and the shapes of its answers.

Must not know any answer.
"""

from typing import Protocol

import msgspec

VALIDATION_STEPS = ("driver", "toolkit", "cuda", "plugin")
"""The validator's chain, in order."""


class TimeSpan(msgspec.Struct, frozen=True):
    """How long something takes; no seconds: it never comes to an end."""

    seconds: float | None


class ProcessEnd(msgspec.Struct, frozen=True):
    """After how long a process ends by itself, and how; no time: it runs until it is stopped."""

    after: float | None
    exit_code: int = 0


class ValidationEnd(msgspec.Struct, frozen=True):
    """After how long a validation ends, and at which step it failed; no time: it hangs."""

    after: float | None
    failed: str = ""
    """Empty: it passed."""


NEVER = TimeSpan(None)
RUNS_FOREVER = ProcessEnd(None)


class WorldModel(Protocol):
    """What can be asked of machines, and of the work on them.

    A workload is what made the pod (a DaemonSet, a Job), by its name. An attempt counts the starts
    of that container of that workload on that node, from 0 on, over all of its pods; or the
    attempts at unloading, loading or validating on that node. A driver is named by the label that
    the node has for it, or by its target: whoever asks keeps to one of the two. A pod is named so
    that no other is called the same.
    """

    # What a kubelet asks.

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        """From the container's turn until it can start: its image, mostly."""
        ...

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """How a start of an init container ends."""
        ...

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        """From a container's start until it is ready."""
        ...

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """How a container ends that is meant to run for ever."""
        ...

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """How a container ends that is meant to come to an end."""
        ...

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        """From the request to stop until the container has ended; it has no longer than its grace.

        Of all that run in a pod the slowest counts.
        """
        ...

    def boot(self, node: str, attempt: int) -> TimeSpan:
        """From a machine's going down until its kubelet speaks again."""
        ...

    # What an upgrade asks besides.

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        """How taking out the modules ends; with a code other than 0 somebody holds them."""
        ...

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        """From a driver's start, its image being there, until it works; or how it fails."""
        ...

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        """How the validator's chain ends with a driver that works as far as the driver knows."""
        ...

    def refusal(self, pod: str) -> TimeSpan:
        """For how long, from the first request on, a disruption budget refuses its eviction."""
        ...

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        """From an eviction that was let through until the pod is gone from the API."""
        ...

    def remainder(self, pod: str, age: float) -> TimeSpan:
        """How long a job still runs that has run for so long already.

        For whoever sees a pod and cannot know its end; asked once, at the age at which it was seen.
        """
        ...
