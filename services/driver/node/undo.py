"""The role `undo`: leaves the machine as it was before Sluice, then waits for its pod's end.

It runs in the pod of the driver agent when Sluice is removed, after all other agents and drivers
have ended, and is ready when nothing is left. It needs no bus.
"""

import errno
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from libs.host import driver_files, files, modules
from libs.host.artefacts import installation
from libs.host.cdi import published
from libs.host.files import CorruptUndoLog, UndoableFiles
from libs.host.gpus.nvml import NvmlGpus
from libs.host.linux import InUse, KernelRefused, Linux
from libs.host.machine import Machine, ThreadOffload
from libs.host.tree import Tree
from libs.policy.render.agent_pods import VALIDATIONS
from libs.policy.render.pods import DAEMONS_FILE, READY_FILE
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from libs.runtime.process import Process
from libs.runtime.service import Service
from services.driver.node.agent import DriverAgentSettings, make_linux, make_runtime
from services.driver.node.runtime import RuntimeKeeper
from services.driver.node.runtime_steps import RuntimeSettings
from services.driver.node.toolkit_traces import KINDS

INTERVAL: Final = 5.0
"""Seconds until what could not be removed is tried again."""

RUN: Final = "/run/sluice"
STATUS_FILES: Final = tuple(
    f"{VALIDATIONS}/{name}-ready"
    for name in (
        *("driver", "toolkit", "cuda", "plugin"),
        *("nvidia-fs", "gdrcopy", "nvidia-peermem"),
    )
)
"""What the validator writes for the pods of others."""
DRIVER_FILES: Final = (
    READY_FILE,
    DAEMONS_FILE,
    driver_files.PID,
    driver_files.STATE,
)
"""What driver containers leave; kept as long as a driver is loaded."""
EMPTY_FOLDERS: Final = (
    f"{driver_files.ROOT}/lib/firmware",
    f"{driver_files.ROOT}/lib",
    driver_files.ROOT,
    VALIDATIONS,
    "/run/nvidia",
    "/run/nvidia-fabricmanager",
    "/run/nvidia-topologyd",
    published.FOLDER,
)
"""Made for agents and driver pods; removed where nothing is in them."""

_RUNTIME: Final = "the configuration of the container runtime is not yet as it was"

_log = logger()


class Undo:
    """Of one machine, once."""

    def __init__(self, *, machine: Machine, clock: Clock, settings: RuntimeSettings) -> None:
        """Without `machine.linux`, an installed driver stays until its modules are gone."""
        self._machine = machine
        self._clock = clock
        self._runtime = RuntimeKeeper(machine=machine, clock=clock, settings=settings)
        self.problem = "what Sluice changed on this machine is being undone"
        """Why the machine is not as it was; empty when it is."""

    async def run(self) -> None:
        """Undo everything, and try again what cannot be undone."""
        while self.problem:
            problem = await self._attempt()
            if problem and problem != self.problem:
                _log.warning("not everything can be undone", why=problem)
            self.problem = problem
            if problem:
                await self._clock.sleep(INTERVAL)
        _log.info("the machine is as it was before")
        while True:
            await self._clock.sleep(3600)

    async def _attempt(self) -> str:
        tree, run = self._machine.tree, self._machine.offload.run
        try:
            await run(lambda: remove_specs(tree))
            await self._runtime.look()
            facts = self._runtime.facts
            # The runtime may keep running with what it has read: its files are what counts.
            if await run(lambda: UndoableFiles(tree).has_changes):
                return facts.why if facts is not None and facts.why else _RUNTIME
            if facts is not None and facts.handlers:
                _log.warning(
                    "the container runtime forgets its handlers when it starts again",
                    handlers=list(facts.handlers),
                    why=facts.why,
                )
            problem = await run(lambda: remove_installation(tree, self._machine.linux))
            if problem:
                return problem
            await run(lambda: remove_files(tree))
        except (CorruptUndoLog, OSError) as error:
            return str(error)
        return ""


def remove_specs(tree: Tree) -> None:
    """Remove our CDI specs."""
    for kind in KINDS:
        path = published.file_of(kind)
        tree.remove_unfinished(path)
        published.remove(tree, path)


def remove_installation(tree: Tree, linux: Linux | None) -> str:
    """Remove a driver that was installed on the machine; return why it stays, or an empty text."""
    if not installation.has_traces(tree):
        return ""
    results = [] if linux is None else [linux.unload(name) for name in modules.UNLOAD_ORDER]
    for result in results:
        if isinstance(result, InUse | KernelRefused):
            return f"the driver that is installed on this machine is in use: {result.why}"
    if modules.DRIVER in modules.loaded(tree):
        return "the driver that is installed on this machine is loaded: reboot it"
    if left := installation.take_back(tree):
        _log.warning(
            "paths of the driver stay: others changed them, or they are no valid paths", paths=left
        )
    return ""


def remove_files(tree: Tree) -> None:
    """Remove all other files of Sluice and its driver pods, and the folders made for them."""
    for path in STATUS_FILES:
        tree.remove_unfinished(path)
        tree.remove(path)
    if modules.DRIVER not in modules.loaded(tree):
        for path in DRIVER_FILES:
            tree.remove(path)
    for path in EMPTY_FOLDERS:
        if not _is_in_driver(tree, path):
            with suppress(OSError):
                tree.remove_folder(path)
    for path in (RUN, files.STATE_ROOT):
        _remove_all(tree, path)


def _is_in_driver(tree: Tree, path: str) -> bool:
    """Return whether a path is in the root of a driver, which is mounted."""
    root, above = tree.status(driver_files.ROOT), tree.status("/run/nvidia")
    mounted = root is not None and above is not None and root.st_dev != above.st_dev
    return mounted and path.startswith(driver_files.ROOT)


def _remove_all(tree: Tree, path: str) -> None:
    """Remove a folder with everything below it; links are removed, not followed."""
    for name in tree.names(path):
        child = f"{path}/{name}"
        if _is_own_folder(tree, child):
            _remove_all(tree, child)
        else:
            tree.remove(child)
    if not _is_own_folder(tree, path):
        return
    try:
        tree.remove_folder(path)
    except OSError as error:
        if error.errno != errno.EBUSY:  # a person has mounted a file system there
            raise


def _is_own_folder(tree: Tree, path: str) -> bool:
    """Return whether a path is a folder itself, and no link to one."""
    return tree.link(path) is None and tree.is_folder(path)


async def start(process: Process[DriverAgentSettings], service: Service) -> None:
    """Start the role; it is ready when everything is undone."""
    settings = process.settings
    tree = Tree(settings.host_root)
    offload = await service.enter("machine", ThreadOffload("machine"))
    undo = Undo(
        machine=Machine(
            tree=tree,
            offload=offload,
            gpus=NvmlGpus(
                tree, nvml_library=settings.nvml_library, driver_root=settings.driver_root
            ),
            runtime=make_runtime(settings, tree),
            linux=make_linux(settings, tree) if settings.change_this_machine else None,
        ),
        clock=process.env.clock,
        settings=replace(settings.runtime, configure=False),
    )
    service.run_forever("undo", undo.run())
    service.ready_when("machine", lambda: undo.problem or None)
