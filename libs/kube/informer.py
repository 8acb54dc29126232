"""One kind of objects that is followed, and how far what is known of it can be relied upon.

A kind that the server does not serve is known to have no objects, and is waited for in silence:
somebody may install its definition later. What is made of the objects is not known here.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import KubeError, UnknownKind
from libs.kube.indexed_store import IndexFunc
from libs.kube.resources import Resource
from libs.kube.views import Object
from libs.runtime.backoff import jittered
from libs.runtime.env import Env

SERVED_POLL_INTERVAL: Final = 10.0
"""Seconds between two looks whether a kind is served by now."""
VERIFY_TIMEOUT: Final = 5.0
"""Seconds that a proof may take."""

V = TypeVar("V", bound=Object)


class Informer(Generic[V]):
    """One kind, or the part of it that a namespace and selectors choose."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource[V],
        *,
        env: Env,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, IndexFunc[V]] | None = None,
    ) -> None:
        self.name = resource.plural
        self.cache = Cache(
            kube,
            resource,
            env=env,
            namespace=namespace,
            labels=labels,
            fields=fields,
            indexes=indexes,
        )
        self._kube = kube
        self._resource = resource
        self._clock = env.clock
        self._random = env.random
        self._follows = False
        self._absent_at: float | None = None
        """When the server said last that it serves no such kind."""
        self._trouble = ""

    def __iter__(self) -> Iterator[V]:
        return iter(self.cache)

    async def run(self) -> None:
        """Follow until cancelled, from when the server serves this kind."""
        if self._resource.is_custom:
            while not await self._is_served():
                await self._clock.sleep(jittered(SERVED_POLL_INTERVAL, self._random))
        self._follows, self._absent_at = True, None
        await self.cache.run()

    @property
    def why_unknown(self) -> str:
        """Why it is not known what there is, in words; empty: it is."""
        if self.cache.is_synced or self._absent_at is not None:
            return ""
        return f"{self.name}: {self.cache.problem or self._trouble or 'not listed yet'}"

    @property
    def age(self) -> float:
        """Seconds since something proved that this is how things are."""
        absent = math.inf
        if self._absent_at is not None:
            absent = self._clock.monotonic() - self._absent_at
        return min(absent, self.cache.age) if self._follows else absent

    async def verify_current(self) -> str:
        """Why it cannot be shown that this is how things are now; empty: it was."""
        if not self._follows:
            return f"{self.name}: served now" if await self._is_served() else self._trouble
        if await self.cache.verify_current(within=VERIFY_TIMEOUT):
            return ""
        # All its objects were told as deleted when its definition went.
        if not len(self.cache) and self._resource.is_custom and not await self._is_served():
            return self._trouble
        return f"{self.name}: {self.cache.problem}"

    async def _is_served(self) -> bool:
        asked = self._clock.monotonic()
        self._trouble = ""
        try:
            await self._kube.list_page(self._resource, limit=1, within=VERIFY_TIMEOUT)
        except UnknownKind:
            self._absent_at = asked
            return False
        except KubeError as error:
            self._trouble = f"{self.name}: {error}"
            return False
        return True
