"""What the audit reads: the API server's revisions, and the agents' entries."""

from typing import Any

from libs.contracts.commands import Order
from libs.contracts.message import Data, OpenEnum
from libs.contracts.reports import Result


class Verb(OpenEnum):
    """What a request did to an object."""

    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    APPLY = "apply"
    DELETE = "delete"
    EVICT = "evict"


class Revision(Data, frozen=True, kw_only=True):
    """One request that wrote, or tried to, as the API server saw it."""

    revision: int
    time: float
    user: str
    manager: str = ""
    verb: Verb
    code: int
    """The HTTP status: a 409 is a revision too, of nothing."""
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
    changed: dict[str, tuple[Any, Any]] = {}
    """Path to (before, after); what was not there is None."""


class EntryPhase(OpenEnum):
    """What an agent did about an op."""

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
    epoch: int
    token: int
    op: int
    command: str
    phase: EntryPhase
    time: float
    detail: str = ""
    result: Result | None = None
    """Of a finished op, so that it can be reported again."""

    @property
    def order(self) -> Order:
        """The op it is about."""
        return Order(self.token, self.op)
