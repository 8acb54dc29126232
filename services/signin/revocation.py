"""Close the sessions whose pod, node, account or token has become void.

`objects` refuses such holders from the moment of the deletion; this closes the sessions that they
have, on all servers. What is known no more, though it was just proven current, counts as deleted:
it may have been while no process of sign-in was running.
"""

import asyncio
from typing import Final

from libs.bus.sessions import Session
from libs.contracts.identities import Writer
from libs.kube.views import Object
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.signin.claims import ACCOUNT_PREFIX, Holder, Refused
from services.signin.gate import Connections
from services.signin.metrics import SignInMetrics
from services.signin.objects import ClusterObjects, Named
from services.signin.session_tags import SessionTag, short

PERIOD: Final = 30.0
"""Seconds between two comparisons of all sessions with the objects."""
GATHERED: Final = 5.0
"""Seconds in which deletions are gathered: each comparison looks at all sessions."""
_FORGOTTEN: Final = 10
"""Comparisons after which an unknown object is forgotten."""

_log = logger()


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
        self._refused: dict[SessionTag, float] = {}
        """Sessions whose token the API server refused, and when they end."""
        self._unknown: dict[str, int] = {}
        """Objects that were not known, by the comparison that first found it."""
        self._comparison = 0
        objects.on_departure(self._departed)

    def refuse(self, holder: Holder, refused: Refused) -> None:
        """Close the session of a token that the API server refused."""
        _log.warning(
            "session closed: its token is refused",
            identity=str(holder.identity),
            pod=holder.pod_name,
            why=refused.reason,
        )
        self._refused[SessionTag.of(holder)] = holder.session_ends
        self._changed.set()

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
        if await self._is_current():
            self._comparison += 1
        now = self._clock.now()
        self._refused = {tag: ends for tag, ends in self._refused.items() if now < ends}
        self._unknown = {
            key: first
            for key, first in self._unknown.items()
            if first > self._comparison - _FORGOTTEN
        }
        closed = self._connections.close(self._is_void)
        if closed:
            self._metrics.revoked(closed)
            _log.info("sessions closed: what they belong to is gone", sessions=closed)

    async def _is_current(self) -> bool:
        if self._objects.why_not_synced():
            return False
        problems = [await informer.verify_current() for informer in self._objects.all()]
        return not any(problems)

    def _is_void(self, session: Session) -> bool:
        identity = session.identity
        tag = SessionTag.read(session)
        if tag is None or identity.cluster != self._cluster:
            return False
        if tag in self._refused or self._account_is_void(identity.writer, tag):
            return True
        if identity.writer is Writer.CTL:
            return False
        pod = self._objects.pod(tag.holder)
        if pod is None:
            return tag.holder in self._objects.gone or self._is_missing(f"pod/{tag.holder}")
        if not identity.node:
            return False
        return pod.spec.node_name != identity.node or self._node_is_void(identity.node, tag)

    def _account_is_void(self, writer: Writer, tag: SessionTag) -> bool:
        name = f"{ACCOUNT_PREFIX}{writer}"
        return self._is_replaced(self._objects.account(name), f"account/{name}", tag.account)

    def _node_is_void(self, name: str, tag: SessionTag) -> bool:
        return self._is_replaced(self._objects.nodes.cache.get(name), f"node/{name}", tag.node)

    def _is_replaced(self, found: Named | None, key: str, uid: str) -> bool:
        """Return whether a session's object is another one by now, or is gone."""
        if found is None:
            return self._is_missing(f"{key}/{uid}")
        return bool(uid) and short(found.metadata.uid) != uid

    def _is_missing(self, key: str) -> bool:
        return self._unknown.setdefault(key, self._comparison) < self._comparison

    def _departed(self, obj: Object) -> None:
        if isinstance(obj, Named):
            kind = "account" if obj.metadata.namespace else "node"
            for uid in (short(obj.metadata.uid), ""):
                self._unknown[f"{kind}/{obj.metadata.name}/{uid}"] = self._comparison - 1
        self._changed.set()
