"""Journal records that the audit reads: revisions of the API server and entries of agents."""

from typing import Any

from libs.contracts.commands import Order
from libs.contracts.message import Data, Message, OpenEnum
from libs.contracts.numbers import Count, Epoch, Op, Token
from libs.contracts.reports import Result


class Verb(OpenEnum):
    """The action of a request on an object."""

    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    APPLY = "apply"
    DELETE = "delete"
    EVICT = "evict"


class Revision(Data, frozen=True, kw_only=True):
    """One write request to the API server, successful or not."""

    revision: Count
    time: float
    user: str
    manager: str = ""
    verb: Verb
    code: Count
    """The HTTP status. Failed requests, such as a 409, are recorded with no changes."""
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
    changed: dict[str, tuple[Any, Any]] = {}
    """Path to (before, after); None means absent."""


class EntryPhase(OpenEnum):
    """The phase of an op in an agent's journal."""

    STARTED = "started"
    STEP = "step"
    FINISHED = "finished"
    REFUSED = "refused"


class Entry(Data, frozen=True, kw_only=True):
    """One line of an agent's journal."""

    node: str
    node_uid: str
    boot_id: str
    component: str
    epoch: Epoch
    token: Token
    op: Op
    command: str
    phase: EntryPhase
    time: float
    detail: str = ""
    result: Result | None = None
    """The result of a finished op, kept so that it can be reported again."""

    @property
    def order(self) -> Order:
        return Order(self.token, self.op)


class JournalPage(Message, frozen=True, kw_only=True):
    """A part of an agent's journal, as answer to a check."""

    node: str
    node_uid: str
    boot_id: str
    component: str
    check: str
    """The id of the check."""
    entries: tuple[Entry, ...] = ()
    next: Count | None = None
    """How many entries precede the next page; None: this is the last one."""
    complete_since: float | None = None
    """The journal has every entry from this time on; None: that is not known, because an earlier
    release wrote it."""
    problem: str = ""
    """Why there are no entries."""
