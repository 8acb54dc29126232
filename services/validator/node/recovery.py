"""The validation without a command: after a boot, while NATS is away.

The gate then opens for the driver that was last proven here, and pods wait for the status files.
The evidence belongs to no lease and releases no node; it is reported when NATS is back, and the
scheduler has the driver validated again (docs/states.md#without-nats).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from libs.bus.commands.executor import OpSuperseded
from libs.bus.commands.receiver import CommandReceiver
from libs.contracts.commands import Command, CommandKind, Validate
from libs.contracts.reports import Evidence
from libs.host import driver_files, gate, holders, modules, validations
from libs.host.machine import Machine
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.validator.node.validation import Run

SLOT_WAIT: Final = 15.0
"""Seconds after the start of the agent in which only the slot counts."""
INTERVAL: Final = 2.0
"""Seconds between two looks at the driver."""
PAUSE: Final = 60.0
"""Seconds between two validations, after one that failed."""
PLUGIN_INTERVAL: Final = 5.0
"""Seconds between two questions to the kubelet."""

_log = logger()


class OwnRun:
    """A validation that the validator started itself; it ends once the slot is read."""

    def __init__(self, command: Command, commands: CommandReceiver) -> None:
        self.command = command
        self._commands = commands

    def raise_if_superseded(self) -> None:
        raise_if_read(self._commands)

    def progress(self, phase: str, detail: str = "") -> None:
        if detail:
            _log.info("validation without a command", step=phase, detail=detail)


class Recovery:
    """Starts the chain of steps, until it passes once."""

    def __init__(
        self,
        *,
        machine: Machine,
        prove: Callable[[Run, Validate], Awaitable[Evidence]],
        try_plugin: Callable[[], Awaitable[bool]],
        commands: CommandReceiver,
        names: Callable[[Validate], Command],
        clock: Clock,
        report: Callable[[Evidence], None],
        alone: asyncio.Lock,
    ) -> None:
        """`names` returns a command with the node's names, of no lease; `alone` is held while a
        command is carried out.
        """
        self._machine = machine
        self._prove = prove
        self._try_plugin_once = try_plugin
        self._commands = commands
        self._names = names
        self._clock = clock
        self._report = report
        self._alone = alone

    async def run(self) -> None:
        """Validate a driver that comes up, until a command can be read."""
        await self._clock.sleep(SLOT_WAIT)
        try:
            while not await self._try_once():
                await self._clock.sleep(INTERVAL)
        except OpSuperseded as ended:
            _log.info("validations are commanded", because=str(ended))
        await asyncio.Event().wait()

    async def _try_once(self) -> bool:
        """Validate the driver that runs, if one does; return whether all is proven."""
        async with self._alone:
            raise_if_read(self._commands)
            evidence = await self._validate()
        if evidence is None:
            return False
        if not evidence.passed:
            _log.warning("the driver is not proven", why=evidence.steps[-1].message)
            await self._clock.sleep(PAUSE)
            return False
        while not await self._try_plugin():
            await self._clock.sleep(PLUGIN_INTERVAL)
        return True

    async def _validate(self) -> Evidence | None:
        tree = self._machine.tree
        request = await self._machine.offload.run(lambda: find_driver(tree))
        if request is None or self._is_quiesced():
            return None
        _log.warning("NATS is away: the driver is validated without a command")
        run = OwnRun(self._names(request), self._commands)
        evidence = await self._prove(run, request)
        self._report(evidence)
        return evidence

    async def _try_plugin(self) -> bool:
        async with self._alone:
            raise_if_read(self._commands)
            return await self._try_plugin_once()

    def _is_quiesced(self) -> bool:
        """Return whether the devices were to be released in this boot."""
        begun = self._commands.begun_in_this_boot
        return begun is not None and begun.command == CommandKind.QUIESCE


def raise_if_read(commands: CommandReceiver) -> None:
    if commands.has_read_slot:
        raise OpSuperseded("the slot of this agent was read")


def find_driver(tree: Tree) -> Validate | None:
    """Return what to validate: a driver that is up and not proven in this boot. Blocks."""
    try:
        if tree.exists(validations.CUDA) or modules.DRIVER not in modules.loaded(tree):
            return None
        requests = {each.pod_uid: each for each in gate.list_requests(tree)}
        if not requests:
            return Validate(label="")
        for answer in reversed(gate.list_answers(tree)):
            if tree.exists(driver_files.READY) and holders.containers(tree, answer.pod_uid):
                asked = requests.get(answer.pod_uid)
                digest = asked.install_digest if asked is not None else ""
                return Validate(label=answer.label, pod_uid=answer.pod_uid, install_digest=digest)
    except Unreadable as error:
        _log.warning("the machine cannot be inspected", why=str(error))
    return None
