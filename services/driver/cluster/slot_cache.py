"""Which drivers the command slots name, read as the stream tells it. Nothing is decided here.

Of each slot only its driver and its node are kept: there are several for each of thousands of
nodes. A slot that cannot be read may name any driver, so nothing is known while there is one.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from libs.bus.port import Bus, LastPerSubject, StoredMessage
from libs.contracts import streams, subjects
from libs.contracts.commands import Command, Idle, Install, Swap, Validate
from libs.contracts.message import MalformedMessage, decode


class _Names(NamedTuple):
    label: str
    node_uid: str


_UNREADABLE: Final = _Names("", "")


class SlotCache:
    """What is known of the slots of a cluster: nothing, until they are followed."""

    def __init__(self) -> None:
        self._held: dict[str, _Names] = {}
        self._repeated: set[str] = set()
        self._current = False

    def __call__(self) -> Mapping[str, frozenset[str]] | None:
        """By driver label, the uids of the nodes whose commands name it; None: not known now."""
        if not self._current or _UNREADABLE in self._held.values():
            return None
        found: dict[str, frozenset[str]] = {}
        for label, uid in set(self._held.values()):
            found[label] = found.get(label, frozenset()) | {uid}
        return found

    @asynccontextmanager
    async def follow(self, bus: Bus) -> AsyncGenerator[None]:
        """Until the end of the block; a bus that goes away is waited for."""
        pattern = subjects.of_cluster(subjects.Command, bus.identity.cluster)
        reading = await bus.follow(streams.COMMANDS, pattern, self, start=LastPerSubject())
        try:
            yield
        finally:
            await reading.close()

    # What the bus calls (`Follower`).

    def began(self) -> None:
        """Everything will be repeated."""
        self._repeated.clear()
        self._current = False

    def received(self, message: StoredMessage) -> None:
        """A slot holds this now."""
        self._repeated.add(message.subject)
        names = _named_in(message.data)
        if names is None:
            self._held.pop(message.subject, None)
        else:
            self._held[message.subject] = names

    def caught_up(self) -> None:
        """What was not repeated is gone."""
        self._held = {slot: said for slot, said in self._held.items() if slot in self._repeated}
        self._current = True

    def lost(self) -> None:
        """What comes next may be late."""
        self._current = False


def _named_in(data: bytes) -> _Names | None:
    """The driver that a command names, and for which node; None: it names none."""
    try:
        command = decode(Command, data)
        body = command.open()
    except MalformedMessage:
        return _UNREADABLE
    match body:
        case Swap(label=label) | Install(label=label) | Validate(label=label):
            pass
        case Idle(proven=proven):
            label = proven.label if proven else ""
        case _:
            label = ""
    return _Names(label, command.node_uid) if label else None
