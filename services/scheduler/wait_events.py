"""Kubernetes Events about waits that somebody can end: which are recorded (docs/invariants.md#i10).

Recorded are waits of one node: at once if somebody has to end them, and those that usually end by
themselves only once they have lasted. What keeps a whole pool from going on is in the conditions of
its Rollout, and a wait that ends without anybody's help is in the answer of `why`.

A new leader has to know what its predecessor told. Each event of a wait on the bus says it, so that
the last one of a node is enough.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from libs.bus.port import Bus, BusError, StoredMessage
from libs.bus.read_stream import read_stream
from libs.contracts import subjects
from libs.contracts.events import Event, EventKind, WaitEvent
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.waits import (
    WAITS_OF_POOLS,
    WAITS_REASON,
    WaitCode,
    is_for_people,
    resolver_if_it_lasts,
)
from libs.kube.events import EventRecorder, InvolvedObject
from libs.rollout.decision import Wait
from libs.rollout.wait_tracker import WakeQueue
from libs.runtime.logs import logger

WINDOW: Final = 3600.0
"""Seconds in which a node has at most one Event for each code."""
LASTS: Final = 300.0
"""Seconds after which a wait that usually ends by itself has lasted: forecasts expect 95 % of
images to be pulled within two minutes, and of pods to start and to stop within 20 s
(`libs/forecast/seeded_world.py`)."""
QUIET: Final = 120.0
"""Seconds of a leader's term in which it may find waits that began before it."""
READ_SECONDS: Final = 10.0
"""Seconds in which the last events are read, before a leader decides."""

_log = logger()


class LastWait(msgspec.Struct, frozen=True):
    """What the last event of a wait says about a node."""

    uid: str
    code: WaitCode | None
    """None: the node did not wait, or for nothing that is told."""
    told: Mapping[WaitCode, float]
    """When each code was last told in a Kubernetes Event, as far as that is not long ago."""


async def read_last_waits(bus: Bus) -> Mapping[str, LastWait] | None:
    """Return the last wait of each node by its name; None if the bus does not give them."""
    if not bus.link.is_up:
        return None
    pattern = subjects.Event(
        cluster=bus.identity.cluster,
        node=subjects.ANY,
        writer=Writer.SCHEDULER,
        kind=EventKind.WAIT,
    )
    try:
        async with asyncio.timeout(READ_SECONDS):
            messages = await read_stream(bus, subjects.EVENTS, str(pattern))
    except (BusError, TimeoutError) as error:
        _log.warning("earlier waits are not known, and not told again", why=str(error))
        return None
    return dict(filter(None, map(_last_wait, messages)))


def _last_wait(message: StoredMessage) -> tuple[str, LastWait] | None:
    """Return the node of a wait's event, and what that says; None for any other message."""
    try:
        event = decode(Event, message.data)
        body = event.open()
    except MalformedMessage:
        return None
    if not isinstance(body, WaitEvent):
        return None
    told = {WaitCode(code): at for code, at in body.told.items()}
    code = body.code
    if code is not None and not is_for_people(code, body.who):
        code = code if code in told and told[code] >= body.since else None
    return event.node, LastWait(event.node_uid, code, told)


class WaitEvents:
    """The Events about waits of one leader."""

    def __init__(
        self,
        recorder: EventRecorder,
        *,
        started_at: float,
        earlier: Mapping[str, LastWait] | None,
    ) -> None:
        """`earlier`: the last wait of each node under other leaders; None if they are unknown."""
        self._recorder = recorder
        self._quiet_until = started_at + QUIET
        self._earlier = earlier
        self._told: dict[str, dict[WaitCode, float]] = {}
        """By name of a node: when a code was last told."""
        self._untold = WakeQueue()
        """The nodes with a wait that may end by itself, and when it will have lasted."""

    def forget(self, name: str) -> None:
        self._told.pop(name, None)
        self.ended(name)

    def ended(self, name: str) -> None:
        self._untold.put(name, None)

    def began(self, name: str, uid: str, wait: Wait, now: float) -> None:
        """Record the Event of a wait that begins, unless its code was told within the hour.

        That of a wait that may end by itself is recorded by `tell_lasting`.
        """
        self.ended(name)
        if wait.code in WAITS_OF_POOLS or not uid:
            return
        is_found = now < self._quiet_until and self._began_earlier(name, uid, wait.code)
        if not is_for_people(wait.code, wait.who):
            if not is_found:
                self._untold.put(name, _lasts_from(wait))
            return
        if self._was_told(name, uid, wait.code, now):
            return
        if is_found:
            if self._earlier is None:
                self._told_of(name, uid)[wait.code] = now
            return
        text = f"{wait.code.value}: {wait.detail}. Can be ended by: {wait.who}"
        self._record(name, uid, wait.code, now, text, type="Warning")

    def lasting(self, now: float) -> list[str]:
        """Return the nodes with a wait that may have lasted by now; each is returned once."""
        return self._untold.pop_due(now)

    def tell_lasting(self, name: str, uid: str, wait: Wait, now: float) -> bool:
        """Record the Event of a wait that should have ended by itself; report whether it was."""
        who = resolver_if_it_lasts(wait.who)
        due = _lasts_from(wait)
        if now < due or not who:
            self._untold.put(name, due if now < due else now + LASTS)
            return False
        if self._was_told(name, uid, wait.code, now):
            return False
        minutes = max(1, round((now - wait.since) / 60))
        text = f"{wait.code.value}: {wait.detail}, for {minutes} min. Can be ended by: {who}"
        # The policy gives pods this time: nobody has to do anything before.
        is_allowed = wait.code is WaitCode.EVICTION and wait.until is not None
        if is_allowed:
            text = f"{text}; the limit of the policy ends it too"
        self._record(name, uid, wait.code, now, text, type="Normal" if is_allowed else "Warning")
        return True

    def _record(
        self,
        name: str,
        uid: str,
        code: WaitCode,
        now: float,
        message: str,
        *,
        type: Literal["Normal", "Warning"],
    ) -> None:
        self._told_of(name, uid)[code] = now
        self._recorder.record(
            InvolvedObject(kind="Node", name=name, uid=uid),
            type=type,
            reason=WAITS_REASON,
            message=message,
            group=code.value,
        )

    def told(self, name: str, uid: str, now: float) -> dict[str, float]:
        """Return when each code of a node was told within the hour, for the next leader."""
        told = self._told_of(name, uid)
        return {code.value: at for code, at in told.items() if now - at < WINDOW}

    def _was_told(self, name: str, uid: str, code: WaitCode, now: float) -> bool:
        return now - self._told_of(name, uid).get(code, float("-inf")) < WINDOW

    def _told_of(self, name: str, uid: str) -> dict[WaitCode, float]:
        if name not in self._told:
            last = self._last(name, uid)
            self._told[name] = {} if last is None else dict(last.told)
        return self._told[name]

    def _began_earlier(self, name: str, uid: str, code: WaitCode) -> bool:
        """Report whether a wait that is found was told by another leader, as far as known."""
        last = self._last(name, uid)
        return self._earlier is None or (last is not None and last.code is code)

    def _last(self, name: str, uid: str) -> LastWait | None:
        last = (self._earlier or {}).get(name)
        return last if last is not None and last.uid == uid else None


def _lasts_from(wait: Wait) -> float:
    """Return when a wait has lasted: at half of its limit at the latest, while it can be ended."""
    lasts = wait.since + LASTS
    return lasts if wait.until is None else min(lasts, (wait.since + wait.until) / 2)
