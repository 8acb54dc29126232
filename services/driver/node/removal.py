"""What `swap` and `install` share: the old driver leaves the machine (docs/states.md#gate-2).

Containers first, then modules, which the kernel alone gives up, then files. It never forces
anything.
"""

from typing import Final, NamedTuple

from libs.bus.commands.executor import Op, OpDeadlineExceeded, OpFailed
from libs.host import driver_files, holders, host_driver, modules
from libs.host.artefacts import installation
from libs.host.files import CorruptUndoLog
from libs.host.linux import InUse, KernelRefused, Linux
from libs.host.machine import Machine
from libs.host.tree import Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.driver.node.inspection import Inspection, describe_holders, inspect_machine

INSPECT_INTERVAL: Final = 1.0
"""Seconds between two inspections while an op waits."""

_log = logger()


class _Unloaded(NamedTuple):
    answer: str
    """The kernel's, in a word for the journal; `none`: no module is loaded."""
    problem: str = ""
    """Why modules are still loaded."""


class OldDriver:
    def __init__(self, *, machine: Machine, linux: Linux, clock: Clock, root: str) -> None:
        self._machine = machine
        self._linux = linux
        self._clock = clock
        self._root = root

    async def inspect(self, op: Op) -> Inspection:
        """Inspect the machine; wait while it cannot be read, because unreadable is not absent."""
        while True:
            try:
                return await self._machine.offload.run(lambda: inspect_machine(self._machine.tree))
            except Unreadable as error:
                op.raise_if_superseded()
                op.progress("inspect", str(error))
                if op.is_late:
                    raise OpDeadlineExceeded(f"{error}, until the deadline of the op") from error
            await self._clock.sleep(INSPECT_INTERVAL)

    async def wait_for_pods(
        self, op: Op, *, kept_label: str = "", old_pod_uid: str = ""
    ) -> Inspection | OpFailed:
        """Wait until the machine has no container of an admitted pod, except the kept one."""
        while True:
            inspection = await self.inspect(op)
            kept = inspection.running(kept_label, besides=old_pod_uid) if kept_label else None
            lingering = inspection.lingering(kept.pod_uid if kept else "")
            if not lingering:
                return inspection
            op.raise_if_superseded()
            pods = ", ".join(lingering)
            op.progress("old-driver", f"containers of pod {pods} are still on the machine")
            if op.is_late:
                return OpFailed("old-driver", f"containers of pod {pods} did not end in time")
            await self._clock.sleep(INSPECT_INTERVAL)

    async def remove(self, op: Op, inspection: Inspection) -> OpFailed | None:
        """Unload the modules, and remove the files of the driver."""
        if inspection.preinstalled:
            return OpFailed(host_driver.CODE, f"{host_driver.MESSAGE}: {host_driver.REMEDY}")
        journaled = ""
        while True:
            unloaded = await self._try_unload(op)
            if unloaded.answer != journaled:
                journaled = unloaded.answer
                await op.record(f"unload: {journaled}")
            if not unloaded.problem:
                break
            op.raise_if_superseded()
            op.progress("unload", unloaded.problem)
            if op.is_late:
                return OpFailed("busy", unloaded.problem)
            await self._clock.sleep(INSPECT_INTERVAL)
        await op.checkpoint("clear")
        return await self._machine.offload.run(self._clear)

    async def _try_unload(self, op: Op) -> _Unloaded:
        """Ask the kernel, which alone decides (docs/invariants.md#i5)."""
        inspection = await self.inspect(op)
        if not any(name in inspection.modules for name in modules.UNLOAD_ORDER):
            return _Unloaded("none")
        await op.checkpoint("unload")
        return await self._machine.offload.run(self._unload)

    def _unload(self) -> _Unloaded:
        for name in modules.UNLOAD_ORDER:
            result = self._linux.unload(name)
            if isinstance(result, InUse | KernelRefused):
                found = holders.holders(self._machine.tree)
                where = f"the devices are open in {describe_holders(found)}"
                return _Unloaded("busy", f"{result.why}; {where}")
        return _Unloaded("ok")

    def _clear(self) -> OpFailed | None:
        problem = self._linux.unmount_below(self._root)
        if problem is not None:
            return OpFailed(
                "stale-root", f"{self._root} of the old driver cannot be unmounted: {problem}"
            )
        driver_files.clear(self._machine.tree)
        return self._take_back()

    def _take_back(self) -> OpFailed | None:
        """Remove a driver that was installed on the machine itself."""
        tree = self._machine.tree
        try:
            if not installation.has_traces(tree):
                return None
            left = installation.take_back(tree)
        except CorruptUndoLog as error:
            return OpFailed("undo-log", str(error))
        except OSError as error:
            return OpFailed("uninstall", f"the installed driver cannot be removed: {error}")
        if left:
            _log.warning(
                "paths of the driver stay: others changed them, or they are no valid paths",
                paths=left,
            )
        return None
