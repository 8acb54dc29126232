"""What a controller remembers beside its caches: actions that the caches may not show yet."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.kube.views import format_time
from libs.runtime.clock import Clock
from libs.testing.cluster.views import PODS, Pod

K = TypeVar("K", bound=Hashable)

EXPECTED_FOR = 300.0
"""Seconds after which a deletion that no cache has shown is forgotten."""


class DeletedPods:
    """Delete pods, and treat them as terminating while the cache lags behind."""

    def __init__(self, kube: Kube, *, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._until: dict[str, float] = {}

    async def delete(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._kube.delete(PODS, meta.name, uid=meta.uid, namespace=meta.namespace)
        except NotFound:
            return
        self._until[meta.uid] = self._clock.monotonic() + EXPECTED_FOR

    def forget(self, pod: Pod) -> None:
        self._until.pop(pod.metadata.uid, None)

    def apply_to(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return the pods, with a deletion timestamp on those deleted here."""
        return [self._marked(pod) for pod in pods]

    def _marked(self, pod: Pod) -> Pod:
        until = self._until.get(pod.metadata.uid, 0.0)
        if pod.deleting or until <= self._clock.monotonic():
            return pod
        now = format_time(self._clock.now())
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=now)
        return msgspec.structs.replace(pod, metadata=meta)


class FailureBackoff(Generic[K]):
    """Exponential back-off by key."""

    def __init__(self, *, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._failures: dict[K, tuple[int, float]] = {}
        """Count and end of the back-off."""

    def wait(self, key: K, *, now: float) -> float:
        """Return the seconds left of the key's back-off."""
        return max(0.0, self._failures.get(key, (0, now))[1] - now)

    def count(self, key: K, *, now: float) -> None:
        count, until = self._failures.get(key, (0, now))
        if now - until > 2 * self._longest:
            count = 0
        wait = min(self._longest, self._first * 2.0 ** min(count, 32))
        self._failures[key] = (count + 1, now + wait)
