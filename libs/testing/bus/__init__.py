"""A bus inside the process for simulations and tests, with network faults.

All random draws come from the given `Env`, so in virtual time a seed repeats a run exactly.
"""

import asyncio
from collections.abc import Callable

from libs.bus.permissions import Permissions
from libs.contracts.identities import Identity
from libs.contracts.subjects import Stream
from libs.runtime.env import Env
from libs.testing.bus.broker import Broker
from libs.testing.bus.local_bus import LocalBus
from libs.testing.bus.transport import BusFaults, BusTrace, BusTransport, FaultSampler, TraceRecord

__all__ = ["BusFaults", "LocalBus", "LocalServer", "TraceRecord"]


class LocalServer:
    """The server of all in-process connections, and controls for its faults."""

    def __init__(self, *, env: Env, faults: BusFaults | None = None) -> None:
        self._clock = env.clock
        self._faults = faults or BusFaults()
        self._sampler = FaultSampler(self._faults, env.random)
        self._trace = BusTrace(env.clock)
        self._broker = Broker(env=env)
        self._connections: list[LocalBus] = []
        self._connected = 0
        self._stopped = False
        self._cut: set[Identity] = set()
        self._dropped: set[Identity] = set()
        self._with_drops: set[Identity] = set()

    def connect(self, identity: Identity, *, permissions: Permissions | None = None) -> LocalBus:
        """Open a connection; its link is up unless a fault keeps it down."""
        self._connected += 1
        bus = LocalBus(
            transport=BusTransport(
                identity=identity, clock=self._clock, sampler=self._sampler, trace=self._trace
            ),
            broker=self._broker,
            clock=self._clock,
            trace=self._trace,
            allowed=permissions,
            number=self._connected,
        )
        self._connections.append(bus)
        self._set_links()
        if self._faults.between_drops is not None and identity not in self._with_drops:
            self._with_drops.add(identity)
            self._later(self._faults.between_drops, self._drop, identity)
        return bus

    def add_tracer(self, watcher: Callable[[TraceRecord], None]) -> None:
        """Call `watcher` with each new record."""
        self._trace.watch(watcher)

    # Faults.

    def cut(self, identity: Identity) -> None:
        """Break this identity's links, until `restore`."""
        self._cut.add(identity)
        self._set_links()

    def restore(self, identity: Identity) -> None:
        self._cut.discard(identity)
        self._set_links()

    def stop(self) -> None:
        """Break all links until `start`. Streams are kept."""
        self._stopped = True
        self._set_links()

    def start(self) -> None:
        self._stopped = False
        self._set_links()

    def stop_faults(self) -> None:
        """Stop random faults; links that are down come back as planned."""
        self._faults = self._sampler.faults = BusFaults()

    def lose_stream(self, stream: Stream, *, remade: bool = False) -> None:
        """Delete a stream and its messages; with `remade`, create it again, empty."""
        self._broker.lose(stream.name)
        if remade:
            self._broker.create(stream)

    # Links.

    def _set_links(self) -> None:
        self._connections = [bus for bus in self._connections if not bus.is_killed]
        for bus in tuple(self._connections):
            broken = bus.identity in self._cut or bus.identity in self._dropped
            bus.set_link(not self._stopped and not broken)

    def _drop(self, identity: Identity) -> None:
        if all(bus.is_killed or bus.identity != identity for bus in self._connections):
            self._with_drops.discard(identity)
            return
        if self._faults.between_drops is None:
            return
        self._dropped.add(identity)
        self._set_links()
        self._later(self._faults.dropped, self._return, identity)

    def _return(self, identity: Identity) -> None:
        self._dropped.discard(identity)
        self._set_links()
        if self._faults.between_drops is not None:
            self._later(self._faults.between_drops, self._drop, identity)

    def _later(
        self, seconds: tuple[float, float], act: Callable[[Identity], None], identity: Identity
    ) -> None:
        asyncio.get_running_loop().call_later(self._sampler.draw(seconds), act, identity)
