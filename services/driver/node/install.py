"""`install`: the driver of an artefact replaces the one on the machine (docs/states.md#v-host).

One op with the sub-steps unload, clear, install and load. It may start again at any point, in this
process or a later one: what is placed, and what is loaded, shows on the machine.
"""

from typing import Final

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.contracts.commands import Install
from libs.host import driver_files, modules
from libs.host.artefacts import installation, kernel_modules, store
from libs.host.artefacts.installation import Installation
from libs.host.artefacts.members import ArtefactError
from libs.host.artefacts.store import Index
from libs.host.files import CorruptUndoLog, PathTaken
from libs.host.linux import Linux
from libs.host.machine import Machine
from libs.host.tree import Tree
from services.driver.node.artefacts import ArtefactKeeper
from services.driver.node.inspection import Inspection
from services.driver.node.removal import OldDriver

ARTEFACT: Final = "artefact"
"""The code of a failure to bring an artefact."""


class InstallHandler:
    def __init__(
        self,
        *,
        machine: Machine,
        linux: Linux,
        old_driver: OldDriver,
        artefacts: ArtefactKeeper,
    ) -> None:
        self._machine = machine
        self._linux = linux
        self._artefacts = artefacts
        self._old = old_driver

    async def __call__(self, op: Op) -> OpDone | OpFailed:
        install = op.body
        if not isinstance(install, Install):
            return OpFailed("defect", f"{op.command.kind} is no install")
        wanted = Installation(
            artefact=install.artefact_digest,
            install_digest=install.install_digest,
            label=install.label,
        )
        inspection = await self._old.wait_for_pods(op)
        if isinstance(inspection, OpFailed):
            return inspection
        if await self._is_loaded(inspection, wanted):
            return _done(inspection)
        index = await self._bring(op, wanted.artefact)
        if isinstance(index, OpFailed):
            return index
        return await self._replace(op, wanted, index, inspection)

    async def _is_loaded(self, inspection: Inspection, wanted: Installation) -> bool:
        return await self._machine.offload.run(
            lambda: is_loaded(self._machine.tree, inspection, wanted)
        )

    async def _bring(self, op: Op, digest: str) -> Index | OpFailed:
        """Return what is in the artefact; nothing of the machine has changed yet."""
        op.progress(ARTEFACT, f"artefact {digest} is verified and unpacked")
        try:
            index = await self._artefacts.bring(digest)
        except (ArtefactError, OSError) as error:
            return OpFailed(ARTEFACT, str(error))
        op.raise_if_superseded()
        return index

    async def _replace(
        self, op: Op, wanted: Installation, index: Index, inspection: Inspection
    ) -> OpDone | OpFailed:
        run, tree = self._machine.offload.run, self._machine.tree
        placed = modules.DRIVER not in inspection.modules and await run(
            lambda: installation.installed(tree) == wanted
        )
        found = await run(
            lambda: tuple(installation.problems(tree, index, inspection.kernel, placed=placed))
        )
        if found:
            return OpFailed(found[0].code, "; ".join(f"{e.message}: {e.remedy}" for e in found))
        if not placed:
            failed = await self._old.remove(op, inspection)
            if failed is not None:
                return failed
            await op.checkpoint("install")
            op.progress("install", f"{len(index.files)} files are placed")
            failed = await run(lambda: place(tree, wanted, index))
            if failed is not None:
                return failed
        await op.checkpoint("load")
        op.progress("load", "the modules are loaded")
        problem = await run(
            lambda: load(tree, self._linux, wanted, index=index, kernel=inspection.kernel)
        )
        if problem:
            return OpFailed("driver-start", problem)
        await self._artefacts.keep_only(lambda: {wanted.artefact, *earlier(tree)})
        loaded = await self._old.inspect(op)
        return _done(loaded, kernel_modules.left_out(index, loaded.kernel, loaded.modules))


def earlier(tree: Tree) -> set[str]:
    """Return the artefact that is newest beside others: the way back."""
    names = [name for name in tree.names(store.STORE) if tree.exists(f"{store.STORE}/{name}/index")]
    newest = sorted(names, key=lambda name: tree.modified_at(f"{store.STORE}/{name}/index") or 0.0)
    return set(newest[-2:])


def place(tree: Tree, wanted: Installation, index: Index) -> OpFailed | None:
    """Place the files; what was placed by then stays logged if that fails."""
    try:
        installation.place(tree, wanted, index)
    except PathTaken as error:
        return OpFailed("file-exists", str(error))
    except CorruptUndoLog as error:
        return OpFailed("undo-log", str(error))
    except OSError as error:
        return OpFailed("install", f"the driver cannot be placed: {error}")
    return None


def load(tree: Tree, linux: Linux, wanted: Installation, *, index: Index, kernel: str) -> str:
    """Load the modules, and write of which installation they are; return why that failed."""
    problem = kernel_modules.load(tree, linux, wanted.artefact, index, kernel)
    if not problem:
        tree.write(driver_files.STATE, f"{wanted.install_digest}\n".encode())
    return problem


def is_loaded(tree: Tree, inspection: Inspection, wanted: Installation) -> bool:
    """Return whether the driver is installed completely, and its modules are in the kernel."""
    return (
        inspection.driver is not None
        and driver_files.installed_digest(tree) == wanted.install_digest
        and installation.installed(tree) == wanted
    )


def _done(inspection: Inspection, left_out: str = "") -> OpDone:
    version = inspection.driver.version if inspection.driver else ""
    without = f", without {left_out}" if left_out else ""
    return OpDone(f"driver {version or 'without a version'} is loaded{without}")
