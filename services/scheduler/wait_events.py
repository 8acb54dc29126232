"""Kubernetes Events about waits that somebody can end: which are recorded (docs/invariants.md#i10).

Recorded are waits of one node. What keeps a whole pool from going on is in the conditions of its
Rollout, and a wait that ends without anybody's help is in the answer of `why`.

A new leader has to know what its predecessor told. Each event of a wait on the bus says it, so that
the last one of a node is enough.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.bus.port import Bus, BusError, LastPerSubject, StoredMessage
from libs.contracts import subjects
from libs.contracts.events import Event, EventKind, WaitEvent
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import WaitCode
from libs.kube.events import EventRecorder, InvolvedObject
from libs.rollout.decision import Wait
from libs.rollout.wait_reasons import is_for_people
from libs.runtime.logs import logger

REASON: Final = "GPUDriverUpgradeWaits"
WINDOW: Final = 3600.0
"""Seconds in which a node has at most one Event for each code."""
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
    reading = _LastWaits()
    pattern = subjects.Event(
        cluster=bus.identity.cluster,
        node=subjects.ANY,
        writer=Writer.SCHEDULER,
        kind=EventKind.WAIT,
    )
    try:
        async with asyncio.timeout(READ_SECONDS):
            following = await bus.follow(
                subjects.EVENTS, str(pattern), reading, start=LastPerSubject()
            )
            try:
                await reading.complete.wait()
            finally:
                await following.close()
    except (BusError, TimeoutError) as error:
        _log.warning("earlier waits are not known, and not told again", why=str(error))
        return None
    return reading.found


class _LastWaits:
    def __init__(self) -> None:
        self.found: dict[str, LastWait] = {}
        self.complete = asyncio.Event()

    # Called by the bus (`Follower`).

    def began(self) -> None:
        self.found.clear()

    def received(self, message: StoredMessage) -> None:
        try:
            event = decode(Event, message.data)
            body = event.open()
        except MalformedMessage:
            return
        if isinstance(body, WaitEvent):
            told = {WaitCode(code): at for code, at in body.told.items()}
            code = body.code
            if code is not None and not is_for_people(code, body.who):
                code = None
            self.found[event.node] = LastWait(event.node_uid, code, told)

    def caught_up(self) -> None:
        self.complete.set()

    def lost(self) -> None: ...


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

    def forget(self, name: str) -> None:
        self._told.pop(name, None)

    def began(self, name: str, uid: str, wait: Wait, now: float) -> None:
        """Record the Event of a wait that begins, unless its code was told within the hour."""
        if not is_for_people(wait.code, wait.who) or not uid:
            return
        told = self._told_of(name, uid)
        if now - told.get(wait.code, float("-inf")) < WINDOW:
            return
        if now < self._quiet_until and self._began_earlier(name, uid, wait.code):
            if self._earlier is None:
                told[wait.code] = now
            return
        told[wait.code] = now
        self._recorder.record(
            InvolvedObject(kind="Node", name=name, uid=uid),
            type="Warning",
            reason=REASON,
            message=f"{wait.code.value}: {wait.detail}. Can be ended by: {wait.who}",
            group=wait.code.value,
        )

    def told(self, name: str, uid: str, now: float) -> dict[str, float]:
        """Return when each code of a node was told within the hour, for the next leader."""
        told = self._told_of(name, uid)
        return {code.value: at for code, at in told.items() if now - at < WINDOW}

    def _told_of(self, name: str, uid: str) -> dict[WaitCode, float]:
        if name not in self._told:
            last = self._last(name, uid)
            self._told[name] = {} if last is None else dict(last.told)
        return self._told[name]

    def _began_earlier(self, name: str, uid: str, code: WaitCode) -> bool:
        """Report whether a wait that is found was a wait under another leader, as far as known."""
        last = self._last(name, uid)
        return self._earlier is None or (last is not None and last.code is code)

    def _last(self, name: str, uid: str) -> LastWait | None:
        last = (self._earlier or {}).get(name)
        return last if last is not None and last.uid == uid else None
