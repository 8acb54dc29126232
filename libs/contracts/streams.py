"""The JetStream streams as data; `libs.bus` configures the server accordingly."""

import msgspec

from libs.contracts import subjects
from libs.contracts.subjects import Check, Command, Event, State, everything

DAY = 86_400.0


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one stream."""

    name: str
    subjects: tuple[str, ...]
    keeps: str
    """A description of the content."""
    per_subject: int
    """Maximum number of messages per subject; the oldest are discarded."""
    max_message: int
    max_bytes: int = -1
    max_age: float = 0.0
    compressed: bool = False
    deny_purge: bool = False
    fences: bool = False
    """Whether writers remember sequence numbers, which must not repeat if the stream is lost."""
    notify: tuple[str, str] | None = None
    """Republish stored messages from the first pattern to the second."""
    max_consumers: int
    """Set explicitly, because the server's default (1,000) may change."""


COMMANDS = Stream(
    name="COMMANDS",
    subjects=(everything(Command), everything(Check)),
    keeps="the slots: the current command of each component, and checks sent to it",
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
    keeps="events for people, audits and replay; no decision depends on them",
    per_subject=1_000,
    max_message=64 * 1024,
    max_bytes=1024**3,
    max_age=30 * DAY,
    compressed=True,
    deny_purge=True,
    max_consumers=256,
)

STREAMS = (COMMANDS, STATE, EVENTS)
