"""One guest, from `start` to `stop`, and calls to it."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec, Self, TypeVar

from libs.testing.child_process import WITHIN, ChildProcess
from libs.testing.errors import ServerFailed
from libs.testing.guest import actions, initramfs
from libs.testing.guest.build import BUSYBOX, EMULATOR, KERNEL, cache_folder
from libs.testing.guest.effort import Effort
from libs.testing.guest.gpu import A100, GpuModel, ProxyGpu
from libs.testing.guest.protocol import READY, Call, Raised, decode, encode
from libs.testing.owned_folder import OwnedFolder, abandoned_folders
from libs.testing.realkube.cluster import LoopThread

P = ParamSpec("P")
T = TypeVar("T")

GPUS: Final = ("0000:01:00.0", "0000:02:00.0")
"""The PCI addresses of the GPUs of a guest that is given no others."""
PORTS: Final = ("0000:00:10.0", "0000:00:11.0")
"""Those of the ports below which they are."""
_FIRST_PORT: Final = 0x10
"""The slot of the first port on the bus; what QEMU itself adds is at lower and higher ones."""
_MEMORY: Final = "512M"

_PREFIX: Final = "sluice-guest-"
_CHECKOUT: Final = Path(__file__).parents[3]
_LOOK_EVERY: Final = 1.0
_LINE: Final = 1 << 24
"""Bytes of the longest answer."""
_INHERITED: Final = ("PYTHONPYCACHEPREFIX", "PYTHONHASHSEED", "HOME")


@dataclass(frozen=True, kw_only=True, slots=True)
class GuestSearch:
    """Whether a guest can run on this machine."""

    folder: Path | None
    explanation: str
    """One line: what runs, or what is missing and what to do."""


def find_guest(environ: Mapping[str, str]) -> GuestSearch:
    """Look for what `make guest` has built."""
    missing: list[str] = []
    if sys.platform != "linux" or os.geteuid() != 0:
        missing.append("root on Linux")
    folder = cache_folder(environ)
    if not folder.is_dir():
        missing.append("its kernel and QEMU (`make guest`)")
    if missing:
        explanation = f"no guest: it needs {', '.join(missing)}"
        return GuestSearch(folder=None, explanation=explanation)
    return GuestSearch(folder=folder, explanation=f"a guest from {folder}")


class GuestFailed(ServerFailed):
    """A function raised in the guest; the text is its traceback there."""


class Guest:
    """Lives on an event loop of its own, so that it outlives a test's."""

    def __init__(self, folder: OwnedFolder, thread: LoopThread, models: Sequence[GpuModel]) -> None:
        self.gpus = [
            ProxyGpu(model, name=f"GPU {index} of the guest") for index, model in enumerate(models)
        ]
        self._folder = folder
        self._thread = thread
        self._connected = asyncio.Event()
        self._busy = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._qemu: ChildProcess | None = None
        self._problem: str | None = None
        self._lines: asyncio.StreamReader
        self._port: asyncio.StreamWriter

    @classmethod
    async def start(cls, built: Path, *, gpus: Sequence[GpuModel] = (A100, A100)) -> Self:
        """Boot a guest with these GPUs, and wait until it answers."""
        await asyncio.to_thread(lambda: list(abandoned_folders(_PREFIX)))
        guest = cls(OwnedFolder(_PREFIX), LoopThread("guest"), gpus)
        try:
            await guest._thread.run(guest._start(built))
        except BaseException:
            await guest.stop()
            raise
        return guest

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of a module in the guest; return its result there."""
        return await self._thread.run(self._call(Call(function, args, kwargs)))

    async def reboot(self) -> None:
        """Let the guest's kernel reboot, and wait until it answers."""
        await self._thread.run(self._reboot())

    def problem(self) -> str | None:
        """Return why the guest is dead, with its last lines; nothing while it lives."""
        return self._problem or (self._qemu.problem() if self._qemu else None)

    async def stop(self) -> None:
        await self._thread.run(self._stop())
        await self._thread.close()
        for gpu in self.gpus:
            await asyncio.to_thread(gpu.close)
        self._folder.remove()

    async def _start(self, built: Path) -> None:
        port, first = self._folder.path / "port", self._folder.path / "initramfs"
        first.write_bytes(_first_file_system(built))
        self._server = await asyncio.start_unix_server(self._accept, port, limit=_LINE)
        descriptors = [gpu.descriptor for gpu in self.gpus]
        self._qemu = await ChildProcess.start(
            "the guest", *_command(built, first, port, descriptors), descriptors=descriptors
        )
        for gpu in self.gpus:
            gpu.leave_to_qemu()
        await self._within(self._connected.wait(), "connect")
        await self._wait_for_boot()

    async def _accept(self, lines: asyncio.StreamReader, port: asyncio.StreamWriter) -> None:
        self._lines, self._port = lines, port
        self._connected.set()

    async def _wait_for_boot(self) -> None:
        async def boot() -> None:
            # A reboot may cut off a line.
            while not (await self._line()).endswith(READY):
                pass

        await self._within(boot(), "boot")

    async def _call(self, call: Call) -> Any:
        async with self._busy:
            self._port.write(encode(call))
            answer = decode(await self._within(self._line(), "answer"))
        if isinstance(answer, Raised):
            raise GuestFailed(f"in the guest:\n{answer.traceback}")
        return answer.value

    async def _reboot(self) -> None:
        async with self._busy:
            self._port.write(encode(Call(actions.reboot, (), {})))
            await self._wait_for_boot()

    async def _line(self) -> bytes:
        try:
            line = await self._lines.readline()
        except ConnectionError:  # a killed one takes what was sent with it
            line = b""
        if not line.endswith(b"\n"):
            if self._qemu is not None:
                # It closes the port only when it ends: its exit code comes a moment later.
                await asyncio.wait([asyncio.create_task(self._qemu.wait())], timeout=WITHIN)
            raise self._failure("has closed its port")
        return line

    async def _within(self, wanted: Coroutine[Any, Any, T], what: str) -> T:
        """Wait for this as long as the guest lives and gets on."""
        qemu = self._qemu
        if qemu is None or self._problem is not None:
            wanted.close()
            raise ServerFailed("the guest is dead, as was said before")
        if qemu.problem() is not None:
            wanted.close()
            raise self._failure("has ended by itself")
        effort = Effort(Path(f"/proc/{qemu.pid}/task"), now=time.monotonic())
        wait = asyncio.create_task(wanted)
        try:
            while not wait.done():
                await asyncio.wait([wait], timeout=_LOOK_EVERY)
                effort.look(now=time.monotonic())
                problem = "before it ended" if qemu.problem() else effort.problem()
                if problem is not None and not wait.done():
                    failure = self._failure(f"did not {what} {problem}")
                    # A late answer would be taken for the next one.
                    await self._stop()
                    raise failure
            return wait.result()
        finally:
            wait.cancel()

    def _failure(self, problem: str) -> ServerFailed:
        """Build the error that tells the death of the guest, and remember it."""
        if self._qemu is None:
            return ServerFailed(f"the guest {problem}")
        failure = self._qemu.failure(problem)
        self._problem = self._problem or str(failure)
        return failure

    async def _stop(self) -> None:
        if self._qemu is not None:
            await self._qemu.destroy()
        if self._connected.is_set():
            self._port.close()
        if self._server is not None:
            self._server.close()


def _first_file_system(built: Path) -> bytes:
    modules = {path.stem: path.read_bytes() for path in (built / "kernel").iterdir()}
    order = initramfs.in_order(initramfs.KERNEL_MODULES, modules)
    environ = [f"{name}={os.environ[name]}" for name in _INHERITED if name in os.environ]
    command = [
        *("/usr/bin/env", f"--chdir={_CHECKOUT}", f"PYTHONPATH={_CHECKOUT}", *environ),
        *(f"{actions.MODULES}={built / 'driver'}", sys.executable),
        *("-B", "-m", "libs.testing.guest.inside"),
    ]
    return initramfs.archive(
        {
            "bin/busybox": (built / BUSYBOX).read_bytes(),
            "init": initramfs.init(order, command).encode(),
            **{f"modules/{name}.ko": modules[name] for name in order},
        }
    )


def _command(built: Path, first: Path, port: Path, gpus: Sequence[int]) -> list[str]:
    """Return the command of QEMU, which runs with its own libraries and offers no network."""
    qemu = built / EMULATOR
    libraries = [qemu / "lib/x86_64-linux-gnu", qemu / "usr/lib/x86_64-linux-gnu"]
    devices = [
        (
            *(
                "-device",
                f"pcie-root-port,id=port{index},chassis={index},addr={_FIRST_PORT + index:#x}",
            ),
            *("-device", f"x-pci-proxy-dev,id=gpu{index},fd={descriptor},bus=port{index}"),
        )
        for index, descriptor in enumerate(gpus)
    ]
    return [
        *("/usr/bin/env", f"QEMU_MODULE_DIR={libraries[1] / 'qemu'}"),
        *(str(libraries[0] / "ld-linux-x86-64.so.2"), "--library-path"),
        *(":".join(map(str, libraries)), str(qemu / "usr/bin/qemu-system-x86_64")),
        *("-L", str(qemu / "usr/share/qemu"), "-L", str(qemu / "usr/share/seabios")),
        *("-nodefaults", "-display", "none", "-accel", "tcg", "-cpu", "max", "-m", _MEMORY),
        # Devices in another process see the guest's memory only if it can be shared.
        *("-object", f"memory-backend-memfd,id=memory,size={_MEMORY},share=on"),
        *("-machine", "q35,memory-backend=memory"),
        *("-kernel", str(built / KERNEL), "-initrd", str(first)),
        *("-append", "console=ttyS0 quiet"),
        *("-serial", "stdio", "-chardev", f"socket,id=port,path={port}", "-serial", "chardev:port"),
        "-virtfs",
        f"local,path=/,mount_tag={initramfs.TAG},security_model=none,readonly=on,multidevs=remap",
        *(word for device in devices for word in device),
    ]
