"""What the command slots hold, read as the stream tells it. Nothing is written here."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from libs.bus.port import Bus, Closable, LastPerSubject, StoredMessage
from libs.contracts import streams, subjects
from libs.contracts.commands import Command
from libs.contracts.message import MalformedMessage, decode


class SlotCache:
    """Follows the slots of a cluster while it is entered."""

    def __init__(self, *, bus: Bus, on_change: Callable[[str], None]) -> None:
        self._bus = bus
        self._changed = on_change
        self._pattern = subjects.of_cluster(subjects.Command, bus.identity.cluster)
        self._held: dict[str, dict[str, tuple[int, Command]]] = {}
        self.epoch = 0
        """The highest that was ever seen in a slot."""
        self._seen: set[tuple[str, str]] = set()
        self._current = asyncio.Event()
        self._following: Closable | None = None

    async def __aenter__(self) -> Self:
        self._following = await self._bus.follow(
            streams.COMMANDS, self._pattern, self, start=LastPerSubject()
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._following is not None:
            await self._following.close()

    @property
    def is_current(self) -> bool:
        """Whether everything that the stream holds has been read."""
        return self._current.is_set()

    def of(self, node: str) -> Mapping[str, Command]:
        """By component, the slots of a node."""
        return {name: command for name, (_, command) in self._held.get(node, {}).items()}

    def nodes(self) -> Iterable[str]:
        """Every node that has a slot."""
        return self._held.keys()

    def learn(self, node: str, component: str, command: Command, sequence: int) -> bool:
        """What was written by us is there before the stream says so; False: what is known is newer,
        or of a stream that was lost meanwhile.
        """
        self.epoch = max(self.epoch, command.epoch)
        slots = self._held.setdefault(node, {})
        there = slots.get(component)
        if there is not None and there[0] > sequence:
            return False
        slots[component] = (sequence, command)
        self._changed(node)
        return True

    def forget(self, node: str) -> None:
        """It was deleted, and its slots purged."""
        self._held.pop(node, None)

    # What the bus calls (`Follower`).

    def began(self) -> None:
        """Everything will be repeated; a stream that was made anew numbers from the beginning."""
        for slots in self._held.values():
            slots.update({name: (0, command) for name, (_, command) in slots.items()})
        self._seen.clear()
        self._current.clear()

    def received(self, message: StoredMessage) -> None:
        """A slot holds this now."""
        try:
            of = subjects.parse(message.subject)
            command = decode(Command, message.data)
        except (MalformedMessage, subjects.NotASubject):
            return
        if isinstance(of, subjects.Command):
            self._seen.add((of.node, of.component))
            self.learn(of.node, of.component, command, message.sequence)

    def caught_up(self) -> None:
        """What was not repeated is gone."""
        for node, slots in list(self._held.items()):
            for component in [one for one in slots if (node, one) not in self._seen]:
                del slots[component]
                self._changed(node)
            if not slots:
                del self._held[node]
        self._current.set()

    def lost(self) -> None:
        """What comes next may be late."""
        self._current.clear()
