"""Network namespaces of tests: processes and sockets in them, and relays between them."""

import asyncio
import contextlib
import ctypes
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Final, Self

from libs.testing.child_process import ChildProcess
from libs.testing.errors import ServerFailed

_CLONE_NEWNET: Final = 0x40000000
_CHUNK: Final = 65_536
_WITHIN: Final = 10.0
_CHECK_EVERY: Final = 0.01

Address = tuple[str, int]


def program(name: str) -> str:
    """Return the path of a program of this machine."""
    found = shutil.which(name)
    if found is None:
        raise ServerFailed(f"there is no {name} on the PATH: install it (Debian: util-linux)")
    return found


class NetworkNamespace:
    """The network namespace of a process."""

    def __init__(self, pid: int) -> None:
        self.path = Path(f"/proc/{pid}/ns/net")

    def command(self, *argv: str) -> list[str]:
        """Return a command that runs another one in this namespace."""
        return [program("nsenter"), f"--net={self.path}", *argv]

    async def run(self, *argv: str) -> str:
        """Run a program in this namespace; return its output."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise ServerFailed(f"{' '.join(argv)} failed: {output.decode(errors='replace')}")
        return output.decode()

    async def socket(self) -> socket.socket:
        """Create a TCP socket in this namespace."""
        made: list[socket.socket | OSError] = []

        def make() -> None:
            try:
                with self.path.open() as namespace:
                    _enter(namespace.fileno())
                made.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            except OSError as error:
                made.append(error)

        # Entering a namespace concerns one thread only, and this one ends with it.
        thread = threading.Thread(target=make, name=f"enters {self.path}")
        thread.start()
        await asyncio.to_thread(thread.join)
        if isinstance(made[0], OSError):
            raise made[0]
        made[0].setblocking(False)
        return made[0]


class OwnNamespace(NetworkNamespace):
    """A network namespace that lasts until `stop`, or the end of this thread."""

    def __init__(self, holder: ChildProcess) -> None:
        super().__init__(holder.pid)
        self._holder = holder

    @classmethod
    async def start(cls, name: str) -> Self:
        """Make a namespace with nothing in it but its loopback."""
        holder = await ChildProcess.start(
            name, program("unshare"), "--net", program("sleep"), "2147483647"
        )
        namespace = cls(holder)
        host = os.readlink("/proc/self/ns/net")
        async with asyncio.timeout(_WITHIN):
            while os.readlink(namespace.path) == host:
                _ = holder.pid  # raises when it has ended
                await asyncio.sleep(_CHECK_EVERY)
        await namespace.run("ip", "link", "set", "lo", "up")
        return namespace

    async def stop(self) -> None:
        """Remove the namespace."""
        await self._holder.destroy()


class Relay:
    """Passes connections to an address in one namespace on to an address in another."""

    def __init__(self, server: asyncio.Server, target: "_Target") -> None:
        self._server = server
        self._target = target

    @classmethod
    async def start(
        cls,
        at: Address,
        to: Address,
        *,
        listens_in: NetworkNamespace | None = None,
        connects_in: NetworkNamespace | None = None,
    ) -> Self:
        """Listen and connect in these namespaces; None is our own."""
        target = _Target(to, connects_in)
        listener = await _socket(listens_in)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(at)
        except OSError as error:
            listener.close()
            raise ServerFailed(f"no relay at {at[0]}:{at[1]}: {error}") from error
        return cls(await asyncio.start_server(target.accept, sock=listener), target)

    async def stop(self) -> None:
        """Accept nothing more, and close all connections."""
        self._server.close()
        await self._target.close()


class _Target:
    def __init__(self, address: Address, namespace: NetworkNamespace | None) -> None:
        self._address = address
        self._namespace = namespace
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one connection to the target."""
        task = asyncio.create_task(self._serve(reader, writer), name="relay")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._relay(reader, writer)
        finally:
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await _socket(self._namespace)
        try:
            await asyncio.get_running_loop().sock_connect(there, self._address)
        except BaseException:
            there.close()
            raise
        other_reader, other_writer = await asyncio.open_connection(sock=there)
        try:
            await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))
        finally:
            other_writer.close()

    async def close(self) -> None:
        """Close all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _socket(namespace: NetworkNamespace | None) -> socket.socket:
    if namespace is not None:
        return await namespace.socket()
    own = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    own.setblocking(False)
    return own


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "setns")
