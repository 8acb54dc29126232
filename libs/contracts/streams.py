"""The streams, as data. `libs.bus` makes a server agree with this page."""

import msgspec

from libs.contracts import subjects
from libs.contracts.subjects import Check, Command, Event, State, everything

DAY = 86_400.0


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One stream: what it keeps, how much of it, and what nobody may do to it."""

    name: str
    subjects: tuple[str, ...]
    keeps: str
    """For people: what is in it."""
    per_subject: int
    """How many messages of one subject are kept; the oldest goes."""
    max_message: int
    max_bytes: int = -1
    max_age: float = 0.0
    compressed: bool = False
    deny_purge: bool = False
    fences: bool = False
    """Its sequences are remembered by writers, and must not come again if it is lost."""
    notify: tuple[str, str] | None = None
    """Copy what is stored from the first pattern to the second."""
    max_consumers: int
    """Explicit, because the server has a default of its own (1,000) which is no promise."""


COMMANDS = Stream(
    name="COMMANDS",
    subjects=(everything(Command), everything(Check)),
    keeps="the slots: what each component must do now, and the questions put to it",
    per_subject=1,
    max_message=64 * 1024,
    fences=True,
    notify=(subjects.NOTIFY_FROM, subjects.NOTIFY_TO),
    max_consumers=64,
)

STATE = Stream(
    name="STATE",
    subjects=(everything(State),),
    keeps="the last report of each kind from each component of each node",
    per_subject=1,
    max_message=512 * 1024,
    max_consumers=128,
)

EVENTS = Stream(
    name="EVENTS",
    subjects=(everything(Event),),
    keeps="what happened: for people, audits and replay; nothing is ever decided from it",
    per_subject=1_000,
    max_message=64 * 1024,
    max_bytes=1024**3,
    max_age=30 * DAY,
    compressed=True,
    deny_purge=True,
    max_consumers=256,
)

STREAMS = (COMMANDS, STATE, EVENTS)
