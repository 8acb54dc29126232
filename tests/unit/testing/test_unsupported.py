"""A virtual loop has no threads, sockets, processes or signals, and says so at the call."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from libs.testing.errors import NotSimulated
from libs.testing.simulation import Sim, run

Tried = Callable[[asyncio.AbstractEventLoop], Any]


def nothing() -> None:
    """For a thread to call."""


TRIED: dict[str, tuple[Tried, str]] = {
    "executor": (lambda loop: loop.run_in_executor(None, nothing), "run_in_executor"),
    "thread": (lambda loop: asyncio.to_thread(nothing), "run_in_executor"),
    "connect": (
        lambda loop: asyncio.open_connection("127.0.0.1", 4222),
        r"create_connection\('127.0.0.1', 4222\)",
    ),
    "serve": (lambda loop: asyncio.start_server(print, "127.0.0.1", 0), "create_server"),
    "unix": (lambda loop: asyncio.open_unix_connection("/nowhere"), "create_unix_connection"),
    "datagram": (
        lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol),
        "create_datagram_endpoint",
    ),
    "raw socket": (lambda loop: loop.sock_recv(socket.socket(), 1), "sock_recv"),
    "reader": (lambda loop: loop.add_reader(0, nothing), r"add_reader\(0\)"),
    "name": (lambda loop: loop.getaddrinfo("localhost", 80), r"getaddrinfo\('localhost', 80\)"),
    "process": (lambda loop: asyncio.create_subprocess_exec("true"), r"subprocess_exec\('true'"),
    "shell": (lambda loop: asyncio.create_subprocess_shell("true"), r"subprocess_shell\('true'"),
    "signal": (lambda loop: loop.add_signal_handler(signal.SIGTERM, nothing), "add_signal_handler"),
    "factory": (lambda loop: loop.set_task_factory(None), "set_task_factory"),
}


@pytest.mark.parametrize("what", TRIED)
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_unsupported_calls_are_refused_at_once(what: str) -> None:
    tried, named = TRIED[what]

    async def main(sim: Sim) -> float:
        with pytest.raises(NotSimulated, match=rf"loop\.{named}.* was tried in virtual time; "):
            await tried(sim.loop)
        return sim.clock.monotonic()

    assert run(main, seed=1) == 0.0


def test_every_loop_method_that_leaves_the_simulation_is_refused() -> None:
    """Whatever a real loop adds later is refused by asyncio itself, as not implemented."""

    async def main(sim: Sim) -> list[str]:
        reaching = ("sock", "add_", "remove_", "subprocess", "connect", "create_", "get", "start")
        allowed = {
            *("create_future", "create_task", "get_debug", "get_exception_handler"),
            "get_task_factory",
        }
        names = [name for name in dir(asyncio.AbstractEventLoop) if name.startswith(reaching)]
        through: list[str] = []
        for name in set(names) - allowed:
            try:
                getattr(sim.loop, name)()
            except NotSimulated:
                continue
            through.append(name)
        return through

    assert run(main, seed=1) == []


def test_calls_from_another_thread_are_refused() -> None:
    async def main(sim: Sim) -> list[str]:
        heard: list[str] = []

        def call_in() -> None:
            for call in (sim.loop.call_soon_threadsafe, sim.loop.call_soon):
                try:
                    call(nothing)
                except NotSimulated as refused:
                    heard.append(str(refused))

        thread = threading.Thread(target=call_in)
        thread.start()
        thread.join()
        return heard

    safe, plain = run(main, seed=1)
    assert safe.startswith("loop.call_soon_threadsafe() from another thread was tried")
    assert plain.startswith("loop.call_soon() from another thread was tried")
