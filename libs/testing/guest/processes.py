"""Processes of the guest that open devices. Run in it."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, TextIO

from libs.testing.guest import system_calls

CGROUPS: Final = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class _Process:
    orders: TextIO
    answers: TextIO
    children: list[int] = field(default_factory=list[int])


_processes: Final[dict[int, _Process]] = {}


def start(comm: str, *, cgroup: str = "", enter: Callable[[], None] | None = None) -> int:
    """Start a process in a cgroup, which calls `enter` first; return its pid."""
    orders, answers = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(orders[1])
        _live(comm, os.fdopen(orders[0]), os.fdopen(answers[1], "w"), enter)
    os.close(orders[0])
    os.close(answers[1])
    _processes[pid] = _Process(os.fdopen(orders[1], "w"), os.fdopen(answers[0]))
    if cgroup:
        _place(pid, cgroup)
    if problem := _processes[pid].answers.readline().strip():
        raise OSError(f"the process {comm} cannot start: {problem}")
    return pid


def start_in(folder: str) -> int:
    """Start a process that works in a folder; return its pid."""
    return start("sh", enter=lambda: os.chdir(folder))


def open_devices(pid: int, paths: tuple[str, ...]) -> bool:
    """Let a process open devices; return False if it cannot."""
    return all(_order(pid, f"open {path}") == "" for path in paths)


def map_device(pid: int, path: str) -> None:
    """Let a process map a device into its memory, without keeping it open."""
    if problem := _order(pid, f"map {path}"):
        raise OSError(f"{path} cannot be mapped: {problem}")


def fork(pid: int) -> int:
    """Let a process start another, which has the same devices open; return its pid."""
    child = int(_order(pid, "fork"))
    _processes[pid].children.append(child)
    return child


def close(pid: int) -> None:
    """Let a process close all devices."""
    _order(pid, "close")


def end(pid: int) -> None:
    """Kill a process, and wait until its children have closed their files: they end by themselves,
    but on a busy machine later than the next test unloads the driver.
    """
    process = _processes.pop(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for child in process.children:
        _wait_closed(child)
    process.orders.close()
    process.answers.close()


def end_all() -> None:
    for pid in list(_processes):
        end(pid)


def _wait_closed(pid: int) -> None:
    """Wait until a process has given up its files, as a zombie has, or one that was reaped."""
    while _state(pid) not in ("", "Z", "X"):
        time.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _place(pid: int, cgroup: str) -> None:
    folder = Path(f"{CGROUPS}{cgroup}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text(str(pid))


def _order(pid: int, order: str) -> str:
    process = _processes[pid]
    process.orders.write(f"{order}\n")
    process.orders.flush()
    return process.answers.readline().strip()


def _live(comm: str, orders: TextIO, answers: TextIO, enter: Callable[[], None] | None) -> NoReturn:
    """Carry out orders until their end, with one line as the answer to each: what went wrong."""
    opened: list[int] = []

    def answer(text: str) -> None:
        answers.write(f"{text}\n")
        answers.flush()

    try:
        if enter is not None:
            enter()
        Path("/proc/self/comm").write_text(comm)
        answer("")
        for line in orders:
            answer(_carry_out(line.split(), opened))
    except OSError as error:
        answer(str(error))
    finally:
        os._exit(0)


def _carry_out(order: list[str], opened: list[int]) -> str:
    match order:
        case ["open", path]:
            try:
                opened.append(os.open(path, os.O_RDWR))
            except OSError as error:
                return str(error)
        case ["map", path]:
            device = os.open(path, os.O_RDWR)
            system_calls.map_page(device)
            os.close(device)
        case ["fork"]:
            return str(_fork())
        case _:
            while opened:
                os.close(opened.pop())
    return ""


def _fork() -> int:
    """Start a process that lives as long as its parent; return its pid."""
    parent_lives, held = os.pipe()
    if pid := os.fork():
        os.close(parent_lives)
        return pid
    os.close(held)
    os.read(parent_lives, 1)
    os._exit(0)
