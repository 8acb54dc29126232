"""Follow claims while Sluice serves them: which nodes have them, and why some wait."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from libs.contracts.node import STATE_LABEL
from libs.kube.client import Kube
from libs.kube.events import EventRecorder
from libs.kube.informer import Informer
from libs.kube.resources import PODS
from libs.kube.views.claims import RESOURCE_CLAIMS, ResourceClaim
from libs.policy.render.rendered import DRA_APP
from libs.runtime.env import Env
from services.driver.cluster.claim_notices import Notice, node_of, notices
from services.driver.cluster.resources import Node

CHECK_EVERY: Final = 2.0
"""Seconds between two looks: an Event is there within ten."""
SETTLES_IN: Final = 30.0
"""Seconds after the switch in which GPUs may still be claimed: the nodes' slices are emptied."""
REASON: Final = "ClaimWaits"


class ClaimFollower:
    """Runs for one term of leadership. Without the switch it asks the API server for nothing."""

    def __init__(
        self,
        *,
        kube: Kube,
        namespace: str,
        nodes: Iterable[Node],
        events: EventRecorder,
        serves: Callable[[], bool],
        ends: Callable[[], bool],
        env: Env,
    ) -> None:
        """`serves`: claims are Sluice's to serve. `ends`: those that are there, and no others."""
        self._kube = kube
        self._namespace = namespace
        self._nodes = nodes
        self._events = events
        self._serves = serves
        self._ends = ends
        self._env = env
        self._said: dict[str, str] = {}
        """What was said last, by uid of the claim."""
        self._ends_since: float | None = None
        """When claims were first seen to end; None: they do not."""
        self.claimed_nodes: frozenset[str] | None = None
        """The nodes with GPUs by claims; None: not known. Empty: none, and none comes any more."""

    async def run(self) -> None:
        while True:
            if self._serves():
                await self._follow()
            await self._env.clock.sleep(CHECK_EVERY)

    async def _follow(self) -> None:
        """Follow claims and plugins while claims are served."""
        claims = Informer(self._kube, RESOURCE_CLAIMS, env=self._env)
        plugins = Informer(
            self._kube, PODS, env=self._env, namespace=self._namespace, labels=f"app={DRA_APP}"
        )
        tasks = [asyncio.create_task(each.run()) for each in (claims, plugins)]
        try:
            while self._serves():
                if not (claims.why_not_synced or plugins.why_not_synced):
                    self.claimed_nodes = await self._claimed(claims)
                    states = {
                        node.metadata.name: node.metadata.labels.get(STATE_LABEL, "")
                        for node in self._nodes
                    }
                    self._say(notices(claims, plugins=plugins, states=states, ends=self._ends()))
                await self._env.clock.sleep(CHECK_EVERY)
        finally:
            self.claimed_nodes, self._ends_since = None, None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _claimed(self, claims: Informer[ResourceClaim]) -> frozenset[str] | None:
        """Return the nodes with GPUs by claims; None: a claim may be missing, or be about to come.

        The plugin leaves by an empty answer, and nothing brings it back.
        """
        now = self._env.clock.monotonic()
        if not self._ends():
            self._ends_since = None
        elif self._ends_since is None:
            self._ends_since = now
        found = _nodes_of(claims)
        if not found and self._ends_since is not None and now - self._ends_since >= SETTLES_IN:
            is_current = not await claims.verify_current()
            return _nodes_of(claims) or (frozenset() if is_current else None)
        return found or None

    def _say(self, found: Iterable[Notice]) -> None:
        """Record an Event where the reason is a new one."""
        said: dict[str, str] = {}
        for notice in found:
            uid = notice.claim.metadata.uid
            said[uid] = notice.why
            if self._said.get(uid) == notice.why:
                continue
            for about in notice.about():
                self._events.record(about, type="Warning", reason=REASON, message=notice.why)
        self._said = said


def _nodes_of(claims: Iterable[ResourceClaim]) -> frozenset[str]:
    return frozenset(filter(None, map(node_of, claims)))
