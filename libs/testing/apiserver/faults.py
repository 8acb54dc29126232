"""What goes wrong on demand: which requests are struck, by what, how often.

Only decides; the server does what a strike says at the place where it belongs.
"""

import random
from typing import Literal

import msgspec

from libs.testing.apiserver.kinds.status_errors import MODIFIED
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.watches import ServerWatches

_BUSY = "the server has received too many requests and has asked us to try again later"
_MODIFIED = f"Operation cannot be fulfilled: {MODIFIED}"
_REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden by a fault"),
    409: ("Conflict", _MODIFIED),
    429: ("TooManyRequests", _BUSY),
    500: ("InternalError", "Internal error occurred: a fault"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


class Delay(msgspec.Struct, frozen=True):
    """The request waits before anything is done: in the server, which gives up at the request's
    `timeout`, or on its way there, where nobody counts.
    """

    seconds: float
    where: Literal["server", "way"] = "server"


class Hang(msgspec.Struct, frozen=True):
    """Nothing is done, and nothing is answered, until whoever asks gives up."""


class RefuseRequest(msgspec.Struct, frozen=True):
    """Nothing is done; the answer is this code."""

    code: int
    retry_after: int | None = None

    def status_error(self) -> StatusError:
        """As the server says it."""
        reason, words = _REASONS.get(self.code, ("", f"refused with {self.code} by a fault"))
        return StatusError(self.code, reason, words, retry_after=self.retry_after)


class Cut(msgspec.Struct, frozen=True):
    """The connection is cut: before anything is done, after it is, or within the answer's body."""

    at: Literal["before", "after", "body"]


class DropWatch(msgspec.Struct, frozen=True):
    """A watch ends after so many events; cleanly, or cut in the middle of the next line."""

    after: int = 0
    clean: bool = True


class Stale(msgspec.Struct, frozen=True):
    """A list that may be of any age is as of so many changes ago."""

    changes: int


class SlowBody(msgspec.Struct, frozen=True):
    """The body comes in pieces, with a pause before each."""

    piece: int
    seconds: float


class Restart(msgspec.Struct, frozen=True):
    """The server restarts instead of answering."""


FaultEffect = Delay | Hang | RefuseRequest | Cut | DropWatch | Stale | SlowBody | Restart


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are struck; what is empty means any."""

    effect: FaultEffect
    verbs: tuple[str, ...] = ()
    """get, list, watch, create, update, patch, apply, delete, deletecollection, evict, bind."""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str | None = None
    """Empty: only requests of the objects themselves; None: any."""
    user: str = ""
    probability: float = 1.0
    times: int | None = None
    """So often and no more."""


class FaultTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as faults tell them apart."""

    verb: str
    kind: str
    namespace: str
    name: str
    subresource: str
    user: str
    any_age: bool = False
    """Whether it is a list that may be older than now."""


class ActiveFault:
    """A fault that was added, for as long as it is not removed."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.hit_count = 0

    def matches(self, target: FaultTarget) -> bool:
        """Whether it is about this request, and not used up."""
        fault = self.fault
        if fault.times is not None and self.hit_count >= fault.times:
            return False
        if isinstance(fault.effect, DropWatch) and target.verb != "watch":
            return False
        if isinstance(fault.effect, Stale) and not target.any_age:
            return False
        return (
            (not fault.verbs or target.verb in fault.verbs)
            and fault.kind in ("", target.kind)
            and fault.namespace in ("", target.namespace)
            and fault.name in ("", target.name)
            and fault.subresource in (None, target.subresource)
            and fault.user in ("", target.user)
        )


class ApiFaults:
    """What goes wrong now."""

    def __init__(self, *, random: random.Random, watches: ServerWatches) -> None:
        self._random = random
        self._watches = watches
        self._active: dict[ActiveFault, None] = {}

    def add(self, fault: Fault) -> ActiveFault:
        """From now on; its `struck` says how often it was."""
        active = ActiveFault(fault)
        self._active[active] = None
        return active

    def remove(self, active: ActiveFault) -> None:
        """No more of it."""
        self._active.pop(active, None)

    def clear(self) -> None:
        """All goes well again."""
        self._active.clear()

    def drop_watches(self, *, kind: str = "", user: str = "", clean: bool = True) -> int:
        """End the watches that are open now; how many these were."""
        return self._watches.end(clean=clean, kind=kind, user=user)

    def effects_on(self, target: FaultTarget) -> list[FaultEffect]:
        """All that befalls this request, in the order in which the faults were added."""
        found: list[FaultEffect] = []
        for active in self._active:
            fault = active.fault
            if active.matches(target) and (
                fault.probability >= 1.0 or self._random.random() < fault.probability
            ):
                active.hit_count += 1
                found.append(fault.effect)
        return found
