"""The modules of a real node, whose kernel has none: loaded and unloaded as on a machine with GPUs.

Driver containers load, the driver agent unloads, and tests read and steer. They share the folder
`machine/` of the node: a table, from which `/sys/module` and `/proc/modules` are written anew after
each change. What holds a device is not in the table: it is looked up in the node's own `/proc`.
"""

import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypedDict

from libs.testing.nvml.stand_in import StandIn

MODULES_FILE: Final = "proc/modules"
"""In the folder: what `/proc/modules` would say."""
DRIVER: Final = "nvidia"
_LOADED: Final = {DRIVER: (), "nvidia_modeset": (DRIVER,), "nvidia_uvm": (DRIVER,)}
"""The modules of a driver in the order of loading, with those that each uses."""
_DEVICES: Final = {"nvidia-uvm": "nvidia_uvm", "nvidia-modeset": "nvidia_modeset"}
"""Device files that are not the driver's own, by their module."""
_FIRMWARE: Final = "firmware_class/parameters/path"
"""A file below `/sys/module` that driver pods mount."""
_NULL: Final = (1, 3)
"""The device behind the GPUs' device files."""


class Busy(Exception):
    """A module stays loaded; the text is the kernel's answer."""


class _Module(TypedDict):
    version: str
    uses: list[str]
    since: float


class _Table(TypedDict):
    modules: dict[str, _Module]
    loader: str
    """The uid of the pod that loaded the driver, also after its end."""


class StandInKernel:
    """The kernel of a node, seen from a process that has the node's root at `root`."""

    def __init__(self, machine: Path, *, root: Path | None = None) -> None:
        """`root` is needed to load and to unload."""
        self._machine = machine
        self._root = root

    def boot(self) -> None:
        """Begin without modules."""
        with self._locked() as table:
            table["modules"].clear()
            table["loader"] = ""
        self._gpus().unload()

    def version(self, module: str = DRIVER) -> str:
        """Return the version of a loaded module; empty if it is not loaded."""
        with self._locked() as table:
            return table["modules"][module]["version"] if module in table["modules"] else ""

    def loader(self) -> str:
        """Return the uid of the pod that loaded the driver; empty while it is not loaded."""
        with self._locked() as table:
            return table["loader"] if DRIVER in table["modules"] else ""

    def load(self, version: str, *, by: str, library: str = "") -> None:
        """Load the driver with its modules, and create the device files.

        `by` is the uid of a pod; `library` is the version of NVML, if it is another one.
        """
        now = time.time()
        with self._locked() as table:
            if DRIVER in table["modules"]:
                raise Busy(f"insmod: ERROR: could not insert module {DRIVER}.ko: File exists")
            for name, uses in _LOADED.items():
                table["modules"][name] = _Module(version=version, uses=list(uses), since=now)
            table["loader"] = by
        gpus = self._gpus()
        gpus.load(library or version)
        minors = (f"nvidia{gpu.state.identity.minor}" for gpu in gpus.gpus)
        self._create_devices(["nvidiactl", *_DEVICES, *minors])

    def unload(self, module: str) -> bool:
        """Unload as `delete_module` does; return whether it was loaded."""
        with self._locked() as table:
            if module not in table["modules"]:
                return False
            users = [name for name, each in table["modules"].items() if module in each["uses"]]
            if users or module in self._held():
                raise Busy(f"delete_module {module}: Resource temporarily unavailable")
            del table["modules"][module]
        if module == DRIVER:
            self._gpus().unload()
        return True

    def unload_all(self) -> None:
        """Unload the driver with its modules."""
        for module in reversed(_LOADED):
            self.unload(module)

    def _gpus(self) -> StandIn:
        return StandIn(self._machine / "gpus")

    def _create_devices(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._of_node("dev") / name
            if not path.exists():
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*_NULL))
                path.chmod(0o666)

    def _held(self) -> set[str]:
        """Return the modules whose device files some process has open."""
        held: set[str] = set()
        for link in self._of_node("proc").glob("[0-9]*/fd/*"):
            try:
                folder, _, name = os.readlink(link).rpartition("/")
            except OSError:  # the process has ended, or closed the file
                continue
            if folder.endswith("/dev") and name.startswith("nvidia"):
                held.add(_DEVICES.get(name, DRIVER))
        return held

    def _of_node(self, path: str) -> Path:
        if self._root is None:
            raise ValueError("the root of the node is needed for this")
        return self._root / path

    @contextmanager
    def _locked(self) -> Generator[_Table]:
        """Give the table to one process at a time, and show what it made of it."""
        file = self._machine / "kernel.json"
        with (self._machine / "kernel.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            text = file.read_text() if file.exists() else '{"modules": {}, "loader": ""}'
            table: _Table = json.loads(text)
            yield table
            if (changed := json.dumps(table)) != text or not file.exists():
                _replace(file, changed)
                self._show(table["modules"])

    def _show(self, modules: dict[str, _Module]) -> None:
        folder = self._machine / "module"
        firmware = folder / _FIRMWARE
        firmware.parent.mkdir(parents=True, exist_ok=True)
        firmware.touch()
        for name in _LOADED:
            if name not in modules:
                shutil.rmtree(folder / name, ignore_errors=True)
        lines: list[str] = []
        for name, module in modules.items():
            users = [other for other, each in modules.items() if name in each["uses"]]
            lines.append(
                f"{name} 16384 {len(users)} {','.join([*users, '']) or '-'}"
                " Live 0x0000000000000000\n"
            )
            (folder / name).mkdir(parents=True, exist_ok=True)
            texts = {"version": module["version"], "refcnt": len(users), "initstate": "live"}
            for file, text in texts.items():
                (folder / name / file).write_text(f"{text}\n")
            os.utime(folder / name, (module["since"], module["since"]))
        (self._machine / MODULES_FILE).parent.mkdir(exist_ok=True)
        _replace(self._machine / MODULES_FILE, "".join(reversed(lines)))


def _replace(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)
