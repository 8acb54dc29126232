"""What the scheduler keeps about nodes by itself, while it leads: no other process knows it.

All of it can be lost: then it is asked, evicted or waited for anew.
"""

from collections.abc import Collection

import msgspec

from libs.contracts.reports import Preflight
from libs.rollout.decision import Wait
from libs.rollout.views.machine import Checked
from libs.runtime.backoff import Backoff


class Asked(msgspec.Struct, kw_only=True):
    """A preflight that was asked for."""

    id: str
    boot_id: str
    label: str
    removes: tuple[str, ...] = ()
    at: float
    answered: float | None = None
    answer: Preflight | None = None

    def shown(self) -> Checked:
        """As the engine sees it."""
        return Checked(
            label=self.label,
            asked=self.at,
            removes=self.removes,
            answered=self.answered,
            answer=self.answer,
        )


class Trouble(msgspec.Struct, kw_only=True):
    """A step that fails again and again."""

    step: str
    """Its reason: a step for another one is counted anew."""
    since: float
    times: int = 0
    why: str = ""
    """The last answer."""


class Unanswered(msgspec.Struct, frozen=True):
    """A write of a Node that may yet be carried out, for all we know."""

    revision: str
    """As which it must find the Node."""
    at: float
    """When we gave up waiting."""


class Going(msgspec.Struct, kw_only=True):
    """A pod that is being evicted."""

    since: float
    by_force: bool = False
    refused: str = ""


class Known(msgspec.Struct, kw_only=True):
    """About one node."""

    uid: str = ""
    writing: bool = False
    asked: Asked | None = None
    going: dict[str, Going] = {}
    waiting: Wait | None = None
    trouble: Trouble | None = None
    unanswered: Unanswered | None = None
    backoff: Backoff | None = None
    """How long it is left alone after the next effect that fails."""

    def failed(self, step: str, why: str, *, at: float) -> None:
        """The step for this was refused, or not answered."""
        if self.trouble is None or self.trouble.step != step:
            self.trouble = Trouble(step=step, since=at)
        self.trouble.times += 1
        self.trouble.why = why


class Memory:
    """About all of them, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self.writing_rollouts: set[str] = set()
        self.unwritten: dict[str, str] = {}
        """By pool: why its Rollout could not be written when that was last tried."""

    def of(self, name: str) -> Known:
        """What is kept about a node; it can be changed."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = Known(going={})
        return known

    def see(self, name: str, uid: str) -> Known:
        """The same, of the Node of that uid: what was kept of an earlier one is void."""
        known = self.of(name)
        if known.uid != uid:
            known = self._known[name] = Known(uid=uid, going={}, writing=known.writing)
        return known

    def keep(self, names: Collection[str]) -> None:
        """There are no other nodes; of one that is still acted on, all is kept meanwhile."""
        for name in [name for name in self._known if name not in names]:
            known = self._known[name]
            if not known.writing and not known.going:
                del self._known[name]

    def answered(self, name: str, answer: Preflight, *, at: float) -> None:
        """The answer to a question, if it is the one that counts."""
        asked = self.of(name).asked
        if asked is not None and asked.id == answer.check and asked.answer is not answer:
            if asked.answered is None or asked.answered < asked.at:
                asked.answered = at
            asked.answer = answer
