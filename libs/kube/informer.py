"""A cache of one kind that also handles kinds the server does not serve, and all those of a role.

A kind that is not served has no objects; the informer waits for its definition to be installed, and
reports one that is missing unless it is optional.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, Unpack

from libs.kube.cache import Cache, IndexFunc
from libs.kube.client import Kube
from libs.kube.errors import KubeError, UnknownKind
from libs.kube.resources import Resource, Selection
from libs.kube.views import Object
from libs.runtime.clock import jittered
from libs.runtime.env import Env
from libs.runtime.service import Service

SERVED_POLL_INTERVAL: Final = 30.0
"""Seconds between checks whether a kind is served. Each kind that a cluster lacks costs a list at
this rate for ever; what is installed late is found within half a minute."""
REPORT_INTERVAL: Final = 60.0
"""Seconds between two log lines about a missing kind."""
VERIFY_TIMEOUT: Final = 5.0
"""Seconds for a proof that a cache is current; without one, whoever asked deletes nothing."""

log = logging.getLogger("sluice.kube")

V = TypeVar("V", bound=Object)


class Informer(Generic[V]):
    def __init__(
        self,
        kube: Kube,
        resource: Resource[V],
        *,
        env: Env,
        indexes: Mapping[str, IndexFunc[V]] | None = None,
        **selection: Unpack[Selection],
    ) -> None:
        self.name = resource.plural
        self.cache = Cache(kube, resource, env=env, indexes=indexes, **selection)
        self._kube = kube
        self._resource = resource
        self._namespace = selection.get("namespace", "")
        self._clock = env.clock
        self._random = env.random
        self._following = False
        self._absent_at: float | None = None
        """Time of the last response that the kind is not served."""
        self._problem = ""

    def __iter__(self) -> Iterator[V]:
        return iter(self.cache)

    async def run(self) -> None:
        """Follow the kind until cancelled, starting when the server serves it."""
        if self._resource.may_be_absent:
            await self._wait_until_served()
        self._following, self._absent_at = True, None
        await self.cache.run()

    async def _wait_until_served(self) -> None:
        reported_at = -math.inf
        while not await self._is_served():
            now = self._clock.monotonic()
            problem = missing_definitions([self]) or self._problem
            if problem and now - reported_at >= REPORT_INTERVAL:
                log.error("%s", problem)
                reported_at = now
            await self._clock.sleep(jittered(SERVED_POLL_INTERVAL, self._random))

    @property
    def is_served(self) -> bool:
        """Whether no response said that the server lacks the kind, or a later one found it."""
        return self.cache.is_served if self._following else self._absent_at is None

    @property
    def missing(self) -> str:
        """The definition that the server lacks; empty if it has it, or may lack it."""
        resource = self._resource
        if resource.optional or not resource.is_custom or self.is_served:
            return ""
        return f"{resource.plural}.{resource.group}"

    @property
    def why_not_synced(self) -> str:
        """Why the content is unknown; empty if it is known."""
        if self.cache.is_synced or self._absent_at is not None:
            return ""
        return f"{self.name}: {self.cache.problem or self._problem or 'not listed yet'}"

    @property
    def age(self) -> float:
        """Seconds since the content was last proven current."""
        absent = math.inf
        if self._absent_at is not None:
            absent = self._clock.monotonic() - self._absent_at
        return min(absent, self.cache.age) if self._following else absent

    async def verify_current(self) -> str:
        """Return why the content cannot be proven current; empty if it was."""
        if not self._following:
            return f"{self.name}: served now" if await self._is_served() else self._problem
        if await self.cache.verify_current(within=VERIFY_TIMEOUT):
            return ""
        # Deleting a definition deletes all its objects, so an empty cache may be an unserved kind.
        if not len(self.cache) and self._resource.may_be_absent and not await self._is_served():
            return self._problem
        return f"{self.name}: {self.cache.problem}"

    async def _is_served(self) -> bool:
        requested_at = self._clock.monotonic()
        self._problem = ""
        try:
            await self._kube.list_page(
                self._resource, namespace=self._namespace, limit=1, within=VERIFY_TIMEOUT
            )
        except UnknownKind:
            self._absent_at = requested_at
            return False
        except KubeError as error:
            self._problem = f"{self.name}: {error}"
            return False
        return True


class InformerSet:
    """The informers of a role, in the order in which they were added."""

    def __init__(self, kube: Kube, *, env: Env) -> None:
        self._kube = kube
        self._env = env
        self._added: list[Informer[Any]] = []

    def add(
        self,
        resource: Resource[V],
        *,
        indexes: Mapping[str, IndexFunc[V]] | None = None,
        **selection: Unpack[Selection],
    ) -> Informer[V]:
        informer = Informer(self._kube, resource, env=self._env, indexes=indexes, **selection)
        self._added.append(informer)
        return informer

    def add_each(self, resources: Mapping[str, Resource[V]]) -> Mapping[str, Informer[V]]:
        """Add an informer of each kind; return them by kind."""
        return {kind: self.add(resource) for kind, resource in resources.items()}

    def all(self) -> tuple[Informer[Any], ...]:
        return tuple(self._added)

    def why_not_synced(self) -> str:
        """Return why informers have no first list yet; empty when all have one."""
        return "; ".join(why for informer in self._added if (why := informer.why_not_synced))

    def follow(self, service: Service) -> None:
        """Follow all kinds until the service stops; it is ready once all are known and defined."""
        run_informers(self._added, service)
        service.ready_when("sources", lambda: self.why_not_synced() or None)
        service.ready_when("definitions", lambda: missing_definitions(self._added) or None)


def run_informers(followed: Iterable[Informer[Any]], service: Service) -> None:
    """Run these until the service stops; readiness does not ask for them."""
    for informer in followed:
        service.run_forever(f"follow {informer.name}", informer.run())


def missing_definitions(followed: Iterable[Informer[Any]]) -> str:
    """Return which definitions the server lacks, and what to do; empty: none."""
    names = ", ".join(missing for informer in followed if (missing := informer.missing))
    if not names:
        return ""
    remedy = "apply the definitions of this release (deploy/chart/crds)"
    return f"CustomResourceDefinition not installed: {names}; {remedy}"
