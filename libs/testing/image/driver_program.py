"""`nvidia-driver`: the program of a driver container that behaves as the vendor's.

It installs a driver root, loads the modules into the stand-in for the node's kernel, mounts its
root for the node, and waits. When it ends it unloads what it can. Tests steer it by a file in the
folder of the stand-in; it says on its log what it does and why it fails.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final, TextIO

from libs.testing.image.driver_settings import INCIDENTS, DriverSettings, settings_file
from libs.testing.realnodes.stand_in_kernel import Busy, StandInKernel

_NODE: Final = Path("/proc/1/root")
"""The root of the node: driver pods share its process ids."""
_MACHINE: Final = _NODE / "opt/machine"
_RUN: Final = Path("/run/nvidia")
_ROOT: Final = _RUN / "driver"
_MODULES: Final = Path("/sys/module")
_LIBRARIES: Final = Path("/opt/driver")
_ANSWERS: Final = _NODE / "run/sluice/gate/answers"
_BIND, _REC, _UNBINDABLE, _PRIVATE, _DETACH = 0x1000, 0x4000, 1 << 17, 1 << 18, 2


class Failed(Exception):
    """The driver cannot be installed; the text is the reason."""


class DriverContainer:
    def __init__(self, version: str, digest: str, settings: DriverSettings) -> None:
        self._version = version
        self._digest = digest
        self._settings = settings
        self._kernel = StandInKernel(_MACHINE, root=_NODE)
        self._daemon: BinaryIO | None = None

    def init(self) -> None:
        """Install the driver, and load it unless this very installation is loaded."""
        _set_daemons_status("NotReady")
        _show_modules()
        if self._is_loaded():
            _log(f"driver {self._version} is loaded already, by this configuration")
            self._install_libraries()
        else:
            self._install()
        self._daemon = (_NODE / "dev/nvidiactl").open("rb")
        _set_daemons_status("Ready")
        _unmount_root()
        _mount_root()
        (_RUN / "nvidia-driver.state").write_text(f"{self._digest}\n")
        _log("Done, now waiting for signal")

    def shut_down(self) -> None:
        """Close the devices and, unless the settings forbid it, unload the modules."""
        time.sleep(self._settings.end_seconds)
        if self._daemon:
            self._daemon.close()
        if self._settings.leaves_modules:
            _log("the modules and the root stay")
            return
        try:
            self._kernel.unload_all()
        except Busy as error:
            _log(f"Could not unload the driver: {error}")
            return
        _unmount_root()
        (_RUN / "nvidia-driver.pid").unlink(missing_ok=True)
        _log("the driver is unloaded")

    def crash_in_time(self) -> None:
        """Be killed later, if the settings say so: modules and root stay."""
        if self._settings.lives_seconds:
            signal.signal(signal.SIGALRM, _crash)
            signal.setitimer(signal.ITIMER_REAL, self._settings.lives_seconds)

    def _is_loaded(self) -> bool:
        state = _RUN / "nvidia-driver.state"
        installed = state.read_text().strip() if state.exists() else ""
        return bool(self._kernel.version()) and bool(self._digest) and installed == self._digest

    def _install(self) -> None:
        settings = self._settings
        if (loader := self._kernel.loader()) not in ("", _pod_uid()):
            _record_incident(f"it is to replace the modules that pod {loader} has loaded")
        _log(f"Starting installation of NVIDIA driver version {self._version}")
        try:
            self._kernel.unload_all()
        except Busy as error:
            raise Failed(f"Could not unload the driver that is loaded: {error}") from error
        _unmount_root()
        time.sleep(settings.install_seconds)
        while _read_settings(self._version).hangs:
            time.sleep(0.5)
        if settings.failure:
            raise Failed(settings.failure)
        self._install_libraries()
        version = settings.loads or self._version
        self._kernel.load(version, by=_pod_uid(), library=self._version)
        _log(f"Loaded the modules of driver {version}")

    def _install_libraries(self) -> None:
        """Install them in this container's root; that of an earlier container is gone."""
        folder = Path(f"/usr/lib/{os.uname().machine}-linux-gnu")
        for library in _LIBRARIES.iterdir():
            file = f"{library.stem}.{self._version}"
            shutil.copy(library, folder / file)
            link = folder / library.name
            link.unlink(missing_ok=True)
            link.symlink_to(file)


def _set_daemons_status(status: str) -> None:
    """Tell the startup probe whether the daemons of the driver run."""
    folder = _RUN / "validations"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".driver-daemons-status").write_text(f"{status}\n")


def _show_modules() -> None:
    """Show the modules of the stand-in where the startup probe of the driver pod looks."""
    _mount("modules", _MODULES, "tmpfs")
    for name in ("nvidia", "nvidia_modeset", "nvidia_uvm"):
        (_MODULES / name).symlink_to(_MACHINE / "module" / name)


def _mount_root() -> None:
    """Mount this container's root where the node and its pods look for the driver."""
    for flag in (_UNBINDABLE | _REC, _PRIVATE):
        _mount("", "/sys", flags=flag)
    _ROOT.mkdir(parents=True, exist_ok=True)
    _mount("/", _ROOT, flags=_BIND | _REC)


def _unmount_root() -> None:
    """Unmount what is mounted at and below the folder of the root."""
    rows = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    points = [row[4] for row in rows if f"{row[4]}/".startswith(f"{_ROOT}/")]
    for point in reversed(points):
        ctypes.CDLL(None).umount2(point.encode(), _DETACH)


def _mount(source: str | Path, target: str | Path, kind: str = "", *, flags: int = 0) -> None:
    arguments = (str(source).encode(), str(target).encode(), kind.encode() or None)
    if ctypes.CDLL(None, use_errno=True).mount(*arguments, flags, None):
        number = ctypes.get_errno()
        raise Failed(f"mount {target}: {os.strerror(number)}")


def _lock() -> TextIO:
    """Take the lock that only one driver of a node can have."""
    if not (_ANSWERS / _pod_uid()).exists():
        _record_incident("it has started before the gate was opened to its pod")
    _RUN.mkdir(exist_ok=True)
    file = (_RUN / "nvidia-driver.pid").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _record_incident("it has started while another driver runs")
        raise Failed("An instance of the NVIDIA driver is already running, aborting") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _pod_uid() -> str:
    """Return the uid of this container's pod, by the name of its cgroup."""
    names = Path("/proc/self/cgroup").read_text().split("/")
    return next(name.removeprefix("pod") for name in names if name.startswith("pod"))


def _record_incident(text: str) -> None:
    line = f"driver {os.environ['DRIVER_VERSION']} of pod {_pod_uid()}: {text}\n"
    with (_MACHINE / INCIDENTS).open("a") as file:
        file.write(line)


def _read_settings(version: str) -> DriverSettings:
    file = _MACHINE / settings_file(version)
    return DriverSettings(**json.loads(file.read_text())) if file.exists() else DriverSettings()


def _log(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _crash(_signal: int, _frame: FrameType | None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Run until SIGTERM; return the exit code."""
    if sys.argv[1:2] != ["init"]:
        _log("Usage: nvidia-driver init")
        return 1
    version = os.environ["DRIVER_VERSION"]
    driver = DriverContainer(
        version, os.environ.get("DRIVER_CONFIG_DIGEST", ""), _read_settings(version)
    )
    signal.signal(signal.SIGTERM, _end)
    try:
        lock = _lock()
        driver.init()
        driver.crash_in_time()
        while not lock.closed:
            signal.pause()
    except (Failed, Busy) as error:
        _log(str(error))
        return 1
    except SystemExit:
        _log("Caught signal")
        driver.shut_down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
