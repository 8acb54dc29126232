"""The bus in one process: for simulation and tests, with every trouble that a network can make.

It keeps what `port` says, on whatever event loop runs. Every draw comes from the random that it is
given, so that on a loop of virtual time a seed repeats a run exactly. It keeps nothing on disk and
does not know what is said on it.
"""

import asyncio
from collections.abc import Callable

from libs.bus.permissions import Permissions
from libs.contracts.identities import Identity
from libs.contracts.streams import Stream
from libs.runtime.env import Env
from libs.testing.bus.broker import Broker
from libs.testing.bus.faults import BusFaults, FaultSampler
from libs.testing.bus.local_bus import LocalBus
from libs.testing.bus.trace import BusTrace, TraceRecord
from libs.testing.bus.transport import BusTransport

__all__ = ["BusFaults", "LocalBus", "LocalServer", "TraceRecord"]


class LocalServer:
    """What every connection meets at, and the switches that make trouble."""

    def __init__(self, *, env: Env, faults: BusFaults | None = None) -> None:
        self._clock = env.clock
        self._faults = faults or BusFaults()
        self._chance = FaultSampler(self._faults, env.random)
        self._tap = BusTrace(env.clock)
        self._broker = Broker(env=env)
        self._connections: list[LocalBus] = []
        self._connected = 0
        self._stopped = False
        self._cut: set[Identity] = set()
        self._dropped: set[Identity] = set()
        self._breaking: set[Identity] = set()

    def connect(self, identity: Identity, *, permissions: Permissions | None = None) -> LocalBus:
        """A connection of its own, whose link is up unless something keeps it down now."""
        self._connected += 1
        bus = LocalBus(
            line=BusTransport(
                identity=identity, clock=self._clock, chance=self._chance, tap=self._tap
            ),
            broker=self._broker,
            clock=self._clock,
            tap=self._tap,
            may=permissions,
            number=self._connected,
        )
        self._connections.append(bus)
        self._set_links()
        if self._faults.between_drops is not None and identity not in self._breaking:
            self._breaking.add(identity)
            self._later(self._faults.between_drops, self._drop, identity)
        return bus

    def add_tracer(self, watcher: Callable[[TraceRecord], None]) -> None:
        """Tell `watcher` everything that happens from now on."""
        self._tap.watch(watcher)

    # Switches.

    def cut(self, identity: Identity) -> None:
        """Break this identity's links, until `restore`."""
        self._cut.add(identity)
        self._set_links()

    def restore(self, identity: Identity) -> None:
        """Undo `cut`."""
        self._cut.discard(identity)
        self._set_links()

    def stop(self) -> None:
        """Be away from everybody, until `start`. Streams are kept."""
        self._stopped = True
        self._set_links()

    def start(self) -> None:
        """Undo `stop`."""
        self._stopped = False
        self._set_links()

    def stop_faults(self) -> None:
        """From now on nothing goes wrong by chance; what is down comes back in its time."""
        self._faults = self._chance.faults = BusFaults()

    def lose_stream(self, stream: Stream, *, remade: bool = False) -> None:
        """Lose a stream and all that is in it; `remade`: it is there again, empty."""
        self._broker.lose(stream.name)
        if remade:
            self._broker.make(stream)

    # Links.

    def _set_links(self) -> None:
        self._connections = [bus for bus in self._connections if not bus.is_killed]
        for bus in tuple(self._connections):
            broken = bus.identity in self._cut or bus.identity in self._dropped
            bus.set_link(not self._stopped and not broken)

    def _drop(self, identity: Identity) -> None:
        if all(bus.is_killed or bus.identity != identity for bus in self._connections):
            self._breaking.discard(identity)
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
        asyncio.get_running_loop().call_later(self._chance.draw(seconds), act, identity)
