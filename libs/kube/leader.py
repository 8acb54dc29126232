"""Run a function in each term in which this process leads, with a client fenced by that term."""

from collections.abc import Awaitable, Callable

from libs.kube.client import Kube
from libs.kube.lease.election import LeaderElector
from libs.kube.lease.fence import FencedTransport
from libs.kube.lease.term import NotLeading
from libs.kube.transport import Transport
from libs.runtime.clock import jittered
from libs.runtime.env import Env
from libs.runtime.logs import logger

STAND_BACK_SECONDS = 5.0
"""Pause before a deposed leader becomes a candidate again."""

_log = logger()


class Deposed(Exception):
    """Raised by a term's function that sees another leader: it releases the lease and waits."""


class Candidate:
    """A process that leads whenever it holds the lease."""

    def __init__(
        self,
        transport: Transport,
        *,
        manager: str,
        namespace: str,
        lease: str,
        identity: str,
        env: Env,
    ) -> None:
        self.kube = Kube(transport, manager=manager, clock=env.clock)
        """Unfenced client, for reads and for writes that need no leader."""
        self._transport = transport
        self._manager = manager
        self._env = env
        self._elector = LeaderElector(
            kube=self.kube, namespace=namespace, name=lease, identity=identity, env=env
        )
        self.holder = self._elector.holder

    async def run(
        self,
        lead: Callable[[Kube], Awaitable[object]],
        *,
        on_term_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Run `lead` with a fenced client in each term, until cancelled."""
        while True:
            try:
                async with self._elector.lead() as term:
                    fenced = FencedTransport(self._transport, term, clock=self._env.clock)
                    await lead(Kube(fenced, manager=self._manager, clock=self._env.clock))
            except NotLeading as over:
                _log.warning("leads no more", why=str(over))
            except Deposed as over:
                _log.warning("deposed: stops at once", why=str(over))
                await self._env.clock.sleep(jittered(STAND_BACK_SECONDS, self._env.random))
            finally:
                on_term_end()
