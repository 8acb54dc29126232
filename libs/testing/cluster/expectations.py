"""What a controller remembers beside its caches: what it did that they cannot show yet."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

from libs.kube.times import format_time
from libs.runtime.clock import Clock
from libs.testing.cluster.views import Pod

K = TypeVar("K", bound=Hashable)

EXPECTED_FOR = 300.0
"""Seconds after which a deletion that no cache showed is not believed any more."""


class DeletedPods:
    """Pods that were told to go: a cache that lags does not make them live."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def mark(self, pod: Pod) -> None:
        """It was told to go just now."""
        self._until[pod.metadata.uid] = self._clock.monotonic() + EXPECTED_FOR

    def forget(self, pod: Pod) -> None:
        """It is gone."""
        self._until.pop(pod.metadata.uid, None)

    def apply_to(self, pods: Iterable[Pod]) -> list[Pod]:
        """The same pods, with what is known of them."""
        return [self._seen(pod) for pod in pods]

    def _seen(self, pod: Pod) -> Pod:
        until = self._until.get(pod.metadata.uid, 0.0)
        if pod.deleting or until <= self._clock.monotonic():
            return pod
        now = format_time(self._clock.now())
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=now)
        return msgspec.structs.replace(pod, metadata=meta)


class AssumedPods:
    """Pods that were bound, while the cache shows them unbound still."""

    def __init__(self) -> None:
        self._bound: dict[str, tuple[str, Pod]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._bound

    def bind(self, pod: Pod, node: str) -> None:
        """It is on this node from now on."""
        self._bound[pod.metadata.uid] = (node, pod)

    def forget(self, uid: str) -> None:
        """The cache shows it, or it is gone."""
        self._bound.pop(uid, None)

    def on(self, node: str) -> list[Pod]:
        """Those of one node."""
        return [pod for name, pod in self._bound.values() if name == node]


class FailureBackoff(Generic[K]):
    """How long to wait before the next try at a place: twice as long each time."""

    def __init__(self, *, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._known: dict[K, tuple[int, float]] = {}

    def wait(self, key: K, *, now: float) -> float:
        """Seconds from now."""
        return max(0.0, self._known.get(key, (0, now))[1] - now)

    def count(self, key: K, *, now: float) -> None:
        """One more."""
        times, until = self._known.get(key, (0, now))
        if now - until > 2 * self._longest:
            times = 0
        wait = min(self._longest, self._first * 2.0 ** min(times, 32))
        self._known[key] = (times + 1, now + wait)
