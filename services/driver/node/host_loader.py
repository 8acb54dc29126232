"""Loads an installed driver again after a boot, if it is the proven one (docs/states.md#gate-3).

Nothing else loads it: no file of the system names its modules. As with the gate, what is proven is
what an `idle` names, or what was last proven here while the slot could not be read.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from libs.bus.commands.receiver import CommandReceiver
from libs.contracts.commands import Proven
from libs.host import driver_files, modules, system
from libs.host.artefacts import installation, store
from libs.host.artefacts.installation import Installation
from libs.host.linux import Linux
from libs.host.machine import Machine
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.driver.node.install import load

INTERVAL: Final = 2.0
"""Seconds between two looks for an installed driver that is not loaded, as after a boot."""

_log = logger()


class HostLoader:
    def __init__(
        self,
        *,
        machine: Machine,
        linux: Linux,
        commands: CommandReceiver,
        proven: Callable[[], Awaitable[Proven | None]],
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._linux = linux
        self._commands = commands
        self._proven = proven
        self._clock = clock
        self._ended = False
        """Whether this process has nothing left to do, or tried in vain."""

    async def run(self) -> None:
        while True:
            try:
                await self._check()
            except Unreadable as error:
                _log.warning("the installed driver cannot be read", why=str(error))
            await self._clock.sleep(INTERVAL)

    async def _check(self) -> None:
        if self._ended:
            return
        tree, run = self._machine.tree, self._machine.offload.run
        installed = await run(lambda: waiting_installation(tree))
        if installed is None:
            return
        proven = await self._proven()
        if proven is None or await run(lambda: mismatch(tree, installed, proven)):
            return
        async with self._commands.slot_lock:  # no command begins while modules are loaded
            if await self._proven() != proven:
                return
            problem = await run(lambda: load_again(tree, self._linux, installed))
        self._ended = bool(problem)
        _log.info("the proven driver is loaded again", driver=installed.label, why=problem)


def waiting_installation(tree: Tree) -> Installation | None:
    """Return the driver that is installed, and not loaded; None if there is none."""
    if modules.DRIVER in modules.loaded(tree) or driver_files.installed_digest(tree):
        return None
    return installation.installed(tree)


def mismatch(tree: Tree, installed: Installation, proven: Proven) -> bool:
    """Return whether another driver, or this one with another kernel, was proven."""
    kernel = system.kernel(tree)
    found = (installed.label, installed.install_digest, kernel.release if kernel else "")
    return found != (proven.label, proven.install_digest, proven.kernel)


def load_again(tree: Tree, linux: Linux, installed: Installation) -> str:
    """Load the modules; return why that failed, or an empty text."""
    kernel, index = system.kernel(tree), store.read_index(tree, installed.artefact)
    if kernel is None or index is None:
        return "its artefact is not on this machine any more"
    return load(tree, linux, installed, index=index, kernel=kernel.release)
