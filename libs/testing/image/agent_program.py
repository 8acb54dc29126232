"""The entry of the testing image: a service, with a stand-in for the modules of the node's kernel.

The service is named as to Python's `-m`. On a machine without a folder for the stand-in, it finds
no module. Everything else is the product's own, also unmounting.
"""

import runpy
import sys
from pathlib import Path
from typing import Final

from libs.host import gate, linux, modules
from libs.host.gate import GateRequest
from libs.host.linux import (
    InUse,
    KernelRefused,
    Loaded,
    LoadResult,
    NotLoaded,
    RealLinux,
    Unloaded,
    UnloadResult,
)
from libs.host.tree import Tree

MACHINE: Final = "/opt/machine"
"""On a node, the folder of the stand-in."""
OPEN_GATE: Final = f"{gate.FOLDER}/planted"
"""A file on a node with which its gate has a fault: it admits any pod."""


class StandInLinux(RealLinux):
    """The kernel of the node, but for its modules."""

    def __init__(self, tree: Tree, *, change_this_machine: bool) -> None:
        super().__init__(tree, change_this_machine=change_this_machine)
        self._root = Path(tree.root)
        self._machine = tree

    def unload(self, module: str) -> UnloadResult:
        from libs.testing.realnodes.stand_in_kernel import Busy, StandInKernel

        kernel = StandInKernel(self._root / MACHINE.lstrip("/"), root=self._root)
        try:
            return Unloaded() if kernel.unload(module) else NotLoaded()
        except Busy as error:
            return InUse(str(error))

    def load(self, path: str) -> LoadResult:
        """Load the stand-in's modules for that of the driver; the others come with it."""
        from libs.testing.module_files import module_fields
        from libs.testing.realnodes.stand_in_kernel import Busy, StandInKernel

        fields = module_fields(b"".join(self._machine.chunks(path)))
        if fields.get("name") != modules.DRIVER:
            return Loaded()
        kernel = StandInKernel(self._root / MACHINE.lstrip("/"), root=self._root)
        try:
            kernel.load(fields.get("version", ""), by="")
        except Busy as error:
            return KernelRefused(str(error))
        return Loaded()


def _admits_any_pod(_tree: Tree, _request: GateRequest) -> bool:
    return True


def main() -> None:
    """Run the service."""
    modules.PROC_MODULES = f"{MACHINE}/proc/modules"
    linux.RealLinux = StandInLinux
    if Path(OPEN_GATE).exists():
        gate.is_open = _admits_any_pod
    sys.argv[:] = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
