"""Close the sessions whose pod, node, account or token has become void.

`objects` refuses such holders from the moment of the deletion; this closes the sessions that they
have, on all servers. A pod that is known no more, though the pods were just proven current, counts
as deleted: it may have been while no process of sign-in was running.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from libs.bus.sessions import Session
from libs.contracts.identities import Writer
from libs.kube.views import Object
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.signin.claims import ACCOUNT_PREFIX, Holder, Refused
from services.signin.metrics import SignInMetrics
from services.signin.objects import ClusterObjects, Named, Pod

PERIOD: Final = 30.0
"""Seconds between two comparisons of all sessions with the pods."""
GATHERED: Final = 5.0
"""Seconds in which deletions are gathered: each comparison looks at all sessions."""
MARKED: Final = 90.0
"""Seconds in which sessions of a marked node, account or token are closed: until the monitor has
listed all. Later sessions come from tokens that were judged after the deletion."""

_log = logger()


class Connections(Protocol):
    def close(self, matches: Callable[[Session], bool]) -> int:
        """Cut the sessions that match, also those found within the next minute or two."""
        ...


class Revocation:
    def __init__(
        self,
        objects: ClusterObjects,
        connections: Connections,
        *,
        cluster: str,
        clock: Clock,
        metrics: SignInMetrics,
    ) -> None:
        self._objects = objects
        self._connections = connections
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._changed = asyncio.Event()
        self._marks: dict[tuple[str, str], float] = {}
        """Until when sessions of nodes, writers and holders are closed, by kind and name."""
        self._unknown: dict[str, int] = {}
        """Pods that were not known, by the comparison that first found it."""
        self._comparison = 0
        objects.on_departure(self._departed)

    def refuse(self, holder: Holder, refused: Refused) -> None:
        """Close the sessions of a holder whose token the API server refused."""
        _log.warning(
            "session closed: its token is refused",
            identity=str(holder.identity),
            pod=holder.pod_name,
            why=refused.reason,
        )
        self._mark("holder", holder.pod_uid or holder.token_id)

    async def run(self) -> None:
        """Compare sessions with the cluster's objects until cancelled."""
        while True:
            waiting = asyncio.create_task(self._changed.wait(), name="wait for deletions")
            period = asyncio.create_task(self._clock.sleep(PERIOD), name="period")
            try:
                await asyncio.wait({waiting, period}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (waiting, period):
                    task.cancel()
                await asyncio.wait({waiting, period})
            await self._clock.sleep(GATHERED)
            self._changed.clear()
            await self._compare()

    async def _compare(self) -> None:
        if not self._objects.why_not_synced() and not await self._objects.pods.verify_current():
            self._comparison += 1
        now = self._clock.monotonic()
        self._marks = {mark: until for mark, until in self._marks.items() if now < until}
        self._unknown = {
            uid: first for uid, first in self._unknown.items() if first > self._comparison - 10
        }
        closed = self._connections.close(self._is_void)
        if closed:
            self._metrics.revoked(closed)
            _log.info("sessions closed: what they belong to is gone", sessions=closed)

    def _is_void(self, session: Session) -> bool:
        identity = session.identity
        if identity.cluster != self._cluster:
            return False
        if self._is_marked(session):
            return True
        if identity.writer is Writer.CTL or not session.pod_uid:
            return False
        pod = self._objects.pod(session.pod_uid)
        if pod is None:
            return self._is_gone(session.pod_uid)
        return bool(identity.node) and pod.spec.node_name != identity.node

    def _is_gone(self, uid: str) -> bool:
        if uid in self._objects.gone:
            return True
        return self._unknown.setdefault(uid, self._comparison) < self._comparison

    def _is_marked(self, session: Session) -> bool:
        identity = session.identity
        marks = (("node", identity.node), ("writer", identity.writer), ("holder", session.pod_uid))
        now = self._clock.monotonic()
        return any(name and now < self._marks.get((kind, name), now) for kind, name in marks)

    def _departed(self, obj: Object) -> None:
        name = obj.metadata.name
        if isinstance(obj, Pod):
            self._changed.set()
        elif isinstance(obj, Named) and obj.metadata.namespace:
            self._mark("writer", name.removeprefix(ACCOUNT_PREFIX))
        else:
            self._mark("node", name)

    def _mark(self, kind: str, name: str) -> None:
        self._marks[kind, name] = self._clock.monotonic() + MARKED
        self._changed.set()
