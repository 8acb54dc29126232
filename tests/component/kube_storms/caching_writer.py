"""The one who writes through the storm: he decides on his cache, and learns what he is answered.

Every write bears a mark of its own, and what he was told of it is kept: so the journal can say
later whether it was true.
"""

import random as chance
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import msgspec

from libs.contracts.journal import Revision
from libs.kube.cache import Cache
from libs.kube.client import Kube, Preconditions
from libs.kube.errors import KubeError, MalformedResponse, Unavailable
from libs.kube.resources import NODES, PODS
from libs.kube.responses import BlockedByBudget, PodGone
from tests.component.kube.builders import pod
from tests.component.kube_storms.bystanders import BYSTANDER_NAMESPACES

MARK = "storm"
"""The annotation that holds a write's mark."""

_PATH = f"metadata.annotations.{MARK}"


class WriteAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A write, and what he was told of it."""

    mark: str
    """Of a deletion the object's uid: he asks for each only once."""
    result: str
    """`done`, `unknown`, or the name of a definite refusal."""


class CachingWriter:
    """Follows nodes and pods, and writes to both."""

    def __init__(
        self,
        kube: Kube,
        *,
        nodes: Cache[Any],
        pods: Cache[Any],
        random: chance.Random,
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._pods = pods
        self._random = random
        self._count = 0
        self._doomed: set[str] = set()
        self.attempts: list[WriteAttempt] = []

    async def write_once(self) -> None:
        """One write."""
        act = self._random.choice(
            [self._merge, self._apply, self._create, self._delete, self._evict, self._by_old_list]
        )
        await act()

    async def _merge(self) -> None:
        view = self._one(self._nodes)
        if view is not None:
            await self._merge_at(view)

    async def _by_old_list(self) -> None:
        """Decided on a list that may be of any age: the guard must hold."""
        try:
            page = await self._kube.list_page(NODES, resource_version="0", limit=0, within=4.0)
        except KubeError:
            return
        if page.items:
            await self._merge_at(self._random.choice(page.items))

    async def _merge_at(self, view: Any) -> None:
        mark = self._mark()
        change = {"metadata": {"annotations": {MARK: mark}}}
        meta = view.metadata
        done = self._kube.merge(
            NODES, meta.name, change, resource_version=meta.resource_version, within=4.0
        )
        await self._learn(self._nodes, mark, done)

    async def _apply(self) -> None:
        """With the uid and revision that were seen; so no node is ever made."""
        view = self._one(self._nodes)
        if view is None:
            return
        mark, meta = self._mark(), view.metadata
        wanted = {"metadata": {"name": meta.name, "annotations": {MARK: mark}}}
        guard = Preconditions(uid=meta.uid, resource_version=meta.resource_version)
        done = self._kube.apply(NODES, wanted, force=True, preconditions=guard, within=4.0)
        await self._learn(self._nodes, mark, done)

    async def _create(self) -> None:
        mark = self._mark()
        name = f"p{self._random.randrange(40)}"
        wanted = pod(name, labels={"pool": "a"}, annotations={MARK: mark})
        namespace = self._random.choice(BYSTANDER_NAMESPACES)
        done = self._kube.create(PODS, wanted, namespace=namespace, within=4.0)
        await self._learn(self._pods, mark, done)

    async def _delete(self) -> None:
        view = self._doom()
        if view is not None:
            meta = view.metadata
            done = self._kube.delete(
                PODS, meta.name, uid=meta.uid, namespace=meta.namespace, within=4.0
            )
            await self._told(meta.uid, done)

    async def _evict(self) -> None:
        view = self._doom()
        if view is not None:
            meta = view.metadata
            done = self._kube.evict(meta.name, namespace=meta.namespace, uid=meta.uid, within=4.0)
            await self._told(meta.uid, done)

    def _mark(self) -> str:
        self._count += 1
        return f"m{self._count}"

    def _one(self, cache: Cache[Any]) -> Any:
        views = sorted(cache, key=lambda view: view.metadata.key)
        return self._random.choice(views) if views else None

    def _doom(self) -> Any:
        view = self._one(self._pods)
        if view is None or view.metadata.deletion_timestamp or view.metadata.uid in self._doomed:
            return None
        self._doomed.add(view.metadata.uid)
        return view

    async def _learn(self, cache: Cache[Any], mark: str, done: Awaitable[Any]) -> None:
        view = await self._told(mark, done)
        if view is not None:
            cache.record_write(view)

    async def _told(self, mark: str, done: Awaitable[Any]) -> Any:
        answer = None
        try:
            answer = await done
        except (Unavailable, MalformedResponse):
            told = "unknown"
        except KubeError as error:
            told = type(error).__name__
        else:
            told = (
                type(answer).__name__ if isinstance(answer, PodGone | BlockedByBudget) else "done"
            )
        self.attempts.append(WriteAttempt(mark=mark, result=told))
        return answer


def commits(journal: list[Revision], *, user: str) -> Counter[str]:
    """How often each mark was written, and each uid was doomed, by that user."""
    found: Counter[str] = Counter()
    for revision in journal:
        if revision.user == user and revision.code < 300:
            if revision.verb in ("delete", "evict"):
                found[revision.uid] += 1
            elif _PATH in revision.changed:
                found[revision.changed[_PATH][1]] += 1
    return found


def false_results(attempts: list[WriteAttempt], committed: Counter[str]) -> list[str]:
    """What he was told and was not so."""
    allowed = {"done": {1}, "unknown": {0, 1}}
    return [
        f"{attempt.mark} was told {attempt.result!r} and written {committed[attempt.mark]} times"
        for attempt in attempts
        if committed[attempt.mark] not in allowed.get(attempt.result, {0})
    ]
