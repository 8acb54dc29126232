"""An agent's settings, and its side of the bus: commands, checks, reports, beats and events.

Agents have no Kubernetes credentials. The Node's name comes from the downward API; its uid comes
from the claims of the agent's bus token, or from a setting where tokens lack it.
"""

import base64
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec

from libs.bus.commands.checks import CheckHandler
from libs.bus.commands.executor import BeforeStart, CommandHandler, do_nothing_before_start
from libs.bus.commands.receiver import CommandReceiver
from libs.bus.connect import NatsSettings
from libs.bus.events import EventPublisher
from libs.bus.heartbeats import Heartbeat
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.bus.reporter import Reporter
from libs.contracts.commands import CheckKind, CommandKind, describe
from libs.contracts.events import CommandEvent, EventBody
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.reports import Beat
from libs.runtime.env import Env
from libs.runtime.fatal import Fatal
from libs.runtime.process import ProcessSettings
from libs.runtime.service import Service


class AgentSettings(ProcessSettings, frozen=True, kw_only=True):
    """The settings that all agents share."""

    nats: NatsSettings = NatsSettings()
    node: str
    """The Node's name."""
    node_uid: str = ""
    """The Node's uid; if empty, the uid that the token claims."""
    pod_uid: str = ""
    namespace: str = ""
    host_root: Path = Path("/host")
    token_file: str = ""
    state_dir: Path = Path("/var/lib/sluice")
    """The directory of the journal, on the machine, so that it outlives the pod."""
    nvml_library: str = ""
    """The driver's library NVML, or its folder; if empty, it is searched for."""
    driver_root: str = "/run/nvidia/driver"
    """Where a driver container mounts its root on the machine."""

    @property
    def nats_settings(self) -> NatsSettings:
        """Return how to connect as this node, by default with the agent's token."""
        return msgspec.structs.replace(
            self.nats, node=self.node, token_file=self.nats.token_file or self.token_file
        )

    def resolve_node_uid(self) -> str:
        """Return the Node's uid; raise `Fatal` if neither a setting nor the token has it."""
        if self.node_uid:
            return self.node_uid
        if not self.token_file:
            raise Fatal("the Node's uid is unknown: set SLUICE_NODE_UID, or SLUICE_TOKEN_FILE")
        uid = _claimed_uid(self.token_file)
        if not uid:
            raise Fatal(
                f"the token in {self.token_file} does not contain the Node's uid (Kubernetes"
                " adds it from 1.30 on): set SLUICE_NODE_UID"
            )
        return uid


def _claimed_uid(path: str) -> str:
    """Return the Node's uid in the token, unverified: verification is up to the bus server."""
    try:
        payload = Path(path).read_text().split(".")[1]
        claims = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.convert(msgspec.json.decode(claims)["kubernetes.io"]["node"]["uid"], str)
    except OSError as error:
        raise Fatal(f"the token in {path} cannot be read: {error.strerror}") from None
    except (LookupError, TypeError, ValueError, msgspec.DecodeError):
        return ""


class Agent:
    """One component in one boot of one node. No other process may use its `journal`."""

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
        before_start: BeforeStart = do_nothing_before_start,
    ) -> None:
        self._identity = bus.identity
        self._node_uid = node_uid
        self._boot_id = boot_id
        self._clock = env.clock
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
            before_start=before_start,
        )
        self._events = EventPublisher(bus=bus, env=env, on_dropped=lambda: None)
        self.commands.on_entry(self._publish_entry)
        self._heartbeat = Heartbeat(bus=bus, env=env, make_beat=self._beat)

    async def open(self) -> CommandKind | None:
        """Read the journal and return the command in effect, before the bus is connected."""
        await self.commands.open()
        return self.commands.command_in_effect

    def start(self, service: Service) -> None:
        writer = self._identity.writer
        service.run_forever(f"reports of {writer}", self.reporter.run())
        service.run_forever(f"commands of {writer}", self.commands.run())
        service.run_forever(f"heartbeat of {writer}", self._heartbeat.run())
        service.run_forever(f"events of {writer}", self._events.run())
        service.ready_when("slot", lambda: self.commands.last_error or None)
        service.ready_when("reports", lambda: self.reporter.last_error or None)

    def publish_event(self, body: EventBody, *, id: str, message: str) -> None:
        """Publish an event; `id` must be unique among this component's events of this boot."""
        identity = self._identity
        self._events.publish(
            body,
            id=f"{identity}/{self._boot_id}/{id}",
            message=message,
            node=identity.node,
            node_uid=self._node_uid,
        )

    def _publish_entry(self, entry: Entry) -> None:
        """Publish the start, the result or the refusal of a command."""
        if entry.phase is EntryPhase.STEP:
            return
        result = entry.result
        body = CommandEvent(
            epoch=entry.epoch,
            token=entry.token,
            op=entry.op,
            command=entry.command,
            phase=entry.phase.value,
            outcome=result.outcome.value if result is not None else "",
            code=result.code if result is not None else _refusal_code(entry),
        )
        event_id = f"command/{entry.order}/{entry.phase}/{entry.time:.6f}"
        self.publish_event(body, id=event_id, message=_describe(entry))

    def _beat(self) -> Beat:
        seen = self.commands.seen
        return Beat(
            node=self._identity.node,
            node_uid=self._node_uid,
            boot_id=self._boot_id,
            component=self._identity.writer,
            release=version("sluice"),
            knows=self.commands.known_kinds,
            epoch=seen.epoch,
            token=seen.order.token,
            op=seen.order.op,
            at=self._clock.now(),
        )


def _refusal_code(entry: Entry) -> str:
    return entry.detail.partition(":")[0] if entry.phase is EntryPhase.REFUSED else ""


def _describe(entry: Entry) -> str:
    told = f"told to {describe(entry.command, entry.order)}"
    if entry.phase is EntryPhase.STARTED:
        return f"{told}: begun"
    if entry.result is None:
        return f"{told}: refused: {entry.detail}"
    return ": ".join(filter(None, (told, entry.result.outcome.value, entry.result.message)))
