"""One component on a node: its desk, its voice and its pulse, as one thing that a service runs.

What the journal keeps of a command, begun, ended or refused, is told as an event.

What it is told to do and asked is done by the handlers that it is given; it knows none of them.
"""

from collections.abc import Mapping
from importlib.metadata import version

from libs.bus.commands.checks import CheckHandler
from libs.bus.commands.op import CommandHandler
from libs.bus.commands.receiver import CommandReceiver
from libs.bus.events import EventPublisher
from libs.bus.heartbeats import Heartbeat
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.bus.reporter import Reporter
from libs.contracts.beats import Beat
from libs.contracts.commands import CheckKind, CommandKind
from libs.contracts.events import CommandEvent, EventBody
from libs.contracts.journal import Entry, EntryPhase
from libs.runtime.env import Env
from libs.runtime.service import Service


class Agent:
    """A component in one boot of one node; `journal` is open to it alone."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        journal: Journal,
        node_uid: str,
        boot_id: str,
        handlers: Mapping[CommandKind, CommandHandler],
        checks: Mapping[CheckKind, CheckHandler],
    ) -> None:
        self._me = bus.identity
        self._node_uid = node_uid
        self._boot_id = boot_id
        self.reporter = Reporter(bus=bus, env=env, node_uid=node_uid, boot_id=boot_id)
        self.commands = CommandReceiver(
            bus=bus,
            env=env,
            journal=journal,
            reporter=self.reporter,
            node_uid=node_uid,
            boot_id=boot_id,
            handlers=handlers,
            checks=checks,
        )
        self._telling = EventPublisher(bus=bus, env=env, on_dropped=_nothing)
        self.commands.on_entry(self._kept)
        self._pulse = Heartbeat(bus=bus, env=env, make_beat=self._beat)

    async def open(self) -> CommandKind | None:
        """Read the journal: the command whose effect stands, before the bus is there to say it."""
        await self.commands.open()
        return self.commands.command_in_effect

    def start(self, service: Service) -> None:
        """Live as long as the service."""
        me = self._me.writer
        service.run_forever(f"reports of {me}", self.reporter.run())
        service.run_forever(f"desk of {me}", self.commands.run())
        service.run_forever(f"pulse of {me}", self._pulse.run())
        service.run_forever(f"events of {me}", self._telling.run())
        service.ready_when("slot", lambda: self.commands.last_error or None)
        service.ready_when("reports", lambda: self.reporter.last_error or None)

    def publish_event(self, body: EventBody, *, id: str, message: str) -> None:
        """Something happened here; `id` is that of nothing else that this component ever tells."""
        me = self._me
        self._telling.publish(
            body,
            id=f"{me}/{self._boot_id}/{id}",
            message=message,
            node=me.node,
            node_uid=self._node_uid,
        )

    def _kept(self, entry: Entry) -> None:
        if entry.phase is EntryPhase.STEP:
            return
        result = entry.result
        taken = CommandEvent(
            epoch=entry.epoch,
            token=entry.token,
            op=entry.op,
            command=entry.command,
            phase=entry.phase.value,
            outcome=result.outcome.value if result is not None else "",
            code=result.code if result is not None else _code(entry),
        )
        once = f"command/{entry.order}/{entry.phase}/{entry.time:.6f}"
        self.publish_event(taken, id=once, message=_words(entry))

    def _beat(self) -> Beat:
        highest = self.commands.highest
        return Beat(
            node=self._me.node,
            node_uid=self._node_uid,
            boot_id=self._boot_id,
            component=self._me.writer,
            release=version("sluice"),
            knows=self.commands.known_kinds,
            epoch=highest.epoch,
            token=highest.token,
            op=highest.op,
        )


def _code(entry: Entry) -> str:
    """Why a command is refused, in a word."""
    return entry.detail.partition(":")[0] if entry.phase is EntryPhase.REFUSED else ""


def _words(entry: Entry) -> str:
    what = f"{entry.command} {entry.order}"
    if entry.phase is EntryPhase.STARTED:
        return f"{what} begins"
    if entry.result is None:
        return f"{what} is refused: {entry.detail}"
    return ": ".join(filter(None, (what, entry.result.outcome.value, entry.result.message)))


def _nothing() -> None:
    """An event more or less decides nothing."""
