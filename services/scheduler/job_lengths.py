"""Learn how long the jobs of each pool run, for plans: from the times of pods that have ended.

No pod is followed for it. Once an hour the pods are listed that have ended and are still there, and
those that ended since the last time are counted. The counts are in STATE, for the next leader; they
may be lost, and are then learned again. Nothing is decided by them.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from libs.bus.port import Bus, BusError
from libs.bus.read_stream import read_stream
from libs.contracts import subjects
from libs.contracts.lengths import JobLengths, KindLengths
from libs.contracts.message import MalformedMessage, decode, encode
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.views import parse_time
from libs.policy.selectors import selects
from libs.rollout.length_buckets import MOST_BUCKETS, bucket_of
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.runtime.clock import Backoff
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error
from libs.runtime.logs import logger
from services.scheduler import resources
from services.scheduler.plan_pods import pages
from services.scheduler.resources import Pod
from services.scheduler.snapshot.pod_view import controller_kind, started_at

PERIOD: Final = 3600.0
"""Seconds between two lists."""
FIRST: Final = 120.0
"""Seconds of a term before the first: a new leader has more urgent requests."""
MOST_KINDS: Final = 50
"""Kinds of job of a pool that are told apart, in a few KB; others are counted together."""
MOST_JOBS: Final = 1000
"""Jobs of a kind beyond which all counts are halved, so that what changed since weighs more."""

_ENDED: Final = ",".join(f"status.phase!={phase}" for phase in ("Pending", "Running", "Unknown"))
_OTHERS: Final = ("", "")

_log = logger()


class JobLengthsLearner:
    """What one leader knows of the lengths of jobs, by pool."""

    def __init__(
        self,
        *,
        bus: Bus,
        kube: Kube,
        env: Env,
        pools: Mapping[str, PoolView],
        nodes: Mapping[str, NodeView],
    ) -> None:
        """`pools` and `nodes` are followed by others."""
        self._bus = bus
        self._kube = kube
        self._env = env
        self._pools = pools
        self._nodes = nodes
        self._known: dict[str, _PoolLengths] = {}

    def of(self, pool: str) -> JobLengths | None:
        """Return what is known of a pool's jobs; None: nothing."""
        known = self._known.get(pool)
        return None if known is None else known.message(pool)

    @asynccontextmanager
    async def learning(self) -> AsyncGenerator[None]:
        """Learn in the background."""
        task = asyncio.create_task(self._run(), name="job lengths")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        backoff, read = Backoff(self._env.random, cap=PERIOD), False
        while True:
            try:
                if not read:
                    self._known = await _read(self._bus)
                    read = True
                    await self._env.clock.sleep(FIRST)
                await self.learn()
            except (KubeError, BusError) as error:
                _log.warning("lengths of jobs are not learned now", why=str(error))
            except Exception as error:  # noqa: BLE001  (a defect here must not end a term)
                _log.error("lengths of jobs are not learned", why=describe_error(error))
            await self._env.clock.sleep(PERIOD if read else backoff.next())

    async def learn(self) -> None:
        """Count the jobs that ended since the last time, and store what changed."""
        selectors = {
            key: selector
            for key, pool in self._pools.items()
            if (selector := pool.upgrade.wait_for_completion.pod_selector)
        }
        if not selectors:
            return
        now = self._env.clock.now()
        changed: set[str] = set()
        async for page in pages(self._kube, resources.PODS, fields=f"spec.nodeName!=,{_ENDED}"):
            for pod in page:
                key = self._pool_of(pod)
                if key in selectors and selects(selectors[key], pod.metadata.labels):
                    lengths = self._known.setdefault(key, _PoolLengths())
                    if lengths.count(pod, until=now):
                        changed.add(key)
        for key in selectors:
            self._known.setdefault(key, _PoolLengths()).until = now
        for key in sorted(changed):
            await self._store(key)
        for key in sorted(self._known.keys() - self._pools.keys()):
            await self._bus.purge(subjects.STATE, self._subject(key))
            del self._known[key]

    def _pool_of(self, pod: Pod) -> str:
        node = self._nodes.get(pod.spec.node_name)
        return "" if node is None else node.pool

    async def _store(self, pool: str) -> None:
        message = encode(self._known[pool].message(pool))
        await self._bus.store(subjects.STATE, self._subject(pool), message)

    def _subject(self, pool: str) -> str:
        return str(subjects.Lengths(cluster=self._bus.identity.cluster, pool=pool))


class _PoolLengths:
    """The histograms of one pool."""

    def __init__(self, stored: JobLengths | None = None) -> None:
        self.until = 0.0 if stored is None else stored.until
        self._kinds: dict[tuple[str, str], list[int]] = {}
        for kind in stored.kinds if stored is not None else ():
            counts = [0] * MOST_BUCKETS
            for bucket, count in enumerate(kind.counts[:MOST_BUCKETS], kind.first):
                counts[min(bucket, MOST_BUCKETS - 1)] += count
            self._kinds[kind.namespace, kind.owner] = counts

    def count(self, pod: Pod, *, until: float) -> bool:
        """Count a pod that ended by itself after `self.until`; report whether it did."""
        ended, began = _ended_at(pod), started_at(pod)
        if ended is None or began is None or not self.until < ended <= until:
            return False
        kind = pod.metadata.namespace, controller_kind(pod)
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = _OTHERS
        counts = self._kinds.setdefault(kind, [0] * MOST_BUCKETS)
        counts[bucket_of(ended - began)] += 1
        if sum(counts) > MOST_JOBS:
            counts[:] = [count // 2 for count in counts]
        return True

    def message(self, pool: str) -> JobLengths:
        kinds = tuple(
            _kind_lengths(namespace, owner, counts)
            for (namespace, owner), counts in sorted(self._kinds.items())
        )
        return JobLengths(pool=pool, until=self.until, kinds=kinds)


def _kind_lengths(namespace: str, owner: str, counts: Sequence[int]) -> KindLengths:
    filled = [bucket for bucket, count in enumerate(counts) if count]
    first, last = (filled[0], filled[-1]) if filled else (0, -1)
    return KindLengths(
        namespace=namespace, owner=owner, first=first, counts=tuple(counts[first : last + 1])
    )


def _ended_at(pod: Pod) -> float | None:
    """Return when a pod ended by itself; None: it was removed, or its kubelet does not say."""
    if pod.metadata.deletion_timestamp or pod.status.reason:
        return None  # evicted, preempted, or lost with its node
    return max(_ends(pod), default=None)


def _ends(pod: Pod) -> Iterator[float]:
    for container in pod.status.container_statuses:
        ended = container.state.terminated
        if ended is not None and ended.finished_at:
            yield parse_time(ended.finished_at)


async def _read(bus: Bus) -> dict[str, _PoolLengths]:
    """Return what earlier leaders have stored."""
    pattern = subjects.cluster_pattern(subjects.Lengths, bus.identity.cluster)
    found: dict[str, _PoolLengths] = {}
    for message in await read_stream(bus, subjects.STATE, pattern):
        try:
            lengths = decode(JobLengths, message.data)
        except MalformedMessage:
            continue  # of another version: it is learned again
        found[lengths.pool] = _PoolLengths(lengths)
    return found
