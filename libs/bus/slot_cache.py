"""A read-only cache of a cluster's command slots, kept current from their stream."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property

from libs.bus.port import Bus, LastPerSubject, StoredMessage
from libs.contracts import subjects
from libs.contracts.commands import Command, Idle, Install, Swap, Validate
from libs.contracts.message import MalformedMessage, decode


class _Slot:
    def __init__(self, command: Command, sequence: int) -> None:
        self.command = command
        self.sequence = sequence

    @cached_property
    def driver_label(self) -> str | None:
        """The driver that the command names, "" for none; None if its body is malformed."""
        try:
            body = self.command.open()
        except MalformedMessage:
            return None
        match body:
            case Swap(label=label) | Install(label=label) | Validate(label=label):
                return label
            case Idle(proven=proven) if proven:
                return proven.label
            case _:
                return ""


class SlotCache:
    """The slots by node and component; empty until `follow` is entered."""

    def __init__(self, *, on_change: Callable[[str], None] = lambda _node: None) -> None:
        self._on_change = on_change
        self._slots: dict[str, dict[str, _Slot]] = {}
        self._malformed: set[str] = set()
        self._repeated: set[tuple[str, str]] = set()
        self.epoch = 0
        """The highest epoch seen in any slot."""
        self.is_current = False
        """Whether everything that the stream holds has been read."""

    @asynccontextmanager
    async def follow(self, bus: Bus) -> AsyncGenerator[None]:
        """Follow the slots until the end of the block, through outages of the bus."""
        pattern = subjects.cluster_pattern(subjects.Command, bus.identity.cluster)
        following = await bus.follow(subjects.COMMANDS, pattern, self, start=LastPerSubject())
        try:
            yield
        finally:
            await following.close()

    def commands_of(self, node: str) -> Mapping[str, Command]:
        """Return the commands of a node by component."""
        return {name: slot.command for name, slot in self._slots.get(node, {}).items()}

    def nodes(self) -> Iterable[str]:
        """Return every node that has a slot."""
        return self._slots.keys()

    def commanded_drivers(self) -> Mapping[str, frozenset[str]] | None:
        """Return the uids of the nodes whose commands name each driver label.

        Return None while the cache is not current or a slot is malformed: such a slot may name
        any driver.
        """
        if not self.is_current or self._malformed:
            return None
        found: dict[str, set[str]] = {}
        for slots in self._slots.values():
            for slot in slots.values():
                label = slot.driver_label
                if label is None:
                    return None
                if label:
                    found.setdefault(label, set()).add(slot.command.node_uid)
        return {label: frozenset(uids) for label, uids in found.items()}

    def record_write(self, node: str, component: str, command: Command, sequence: int) -> bool:
        """Add a command that this process wrote, before the stream repeats it.

        Return False if the cached command is newer, or of a stream that was lost meanwhile.
        """
        self.epoch = max(self.epoch, command.epoch)
        slots = self._slots.setdefault(node, {})
        known = slots.get(component)
        if known is not None and known.sequence > sequence:
            return False
        slots[component] = _Slot(command, sequence)
        self._on_change(node)
        return True

    def forget(self, node: str) -> None:
        """Drop a deleted node, whose slots were purged."""
        self._slots.pop(node, None)

    # Called by the bus (`Follower`).

    def began(self, _recreated: bool, /) -> None:
        """Prepare for every slot to be repeated; a new stream restarts its sequence numbers."""
        for slots in self._slots.values():
            for slot in slots.values():
                slot.sequence = 0
        self._repeated.clear()
        self._malformed.clear()
        self.is_current = False

    def received(self, message: StoredMessage) -> None:
        """Update one slot; a malformed message leaves the last readable command in place."""
        try:
            subject = subjects.parse(message.subject)
            command = decode(Command, message.data)
        except (MalformedMessage, subjects.NotASubject):
            self._malformed.add(message.subject)
            return
        self._malformed.discard(message.subject)
        if isinstance(subject, subjects.Command):
            self._repeated.add((subject.node, subject.component))
            self.record_write(subject.node, subject.component, command, message.sequence)

    def caught_up(self) -> None:
        """Drop the slots that the stream did not repeat in readable form."""
        for node, slots in list(self._slots.items()):
            for component in [name for name in slots if (node, name) not in self._repeated]:
                del slots[component]
                self._on_change(node)
            if not slots:
                del self._slots[node]
        self.is_current = True

    def lost(self) -> None:
        """Treat the cache as stale until the stream has caught up again."""
        self.is_current = False
