"""Containers of the guest, as a container runtime mounts them. Run in it."""

import os
import pickle
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn, ParamSpec, TypeVar

from libs.testing.guest import actions, processes, system_calls
from libs.testing.guest.protocol import Raised, Returned
from libs.testing.guest.system_calls import MS_BIND, MS_PRIVATE, MS_REC

P = ParamSpec("P")
T = TypeVar("T")

HOST: Final = "/host"
"""Where the agents' containers have the host's root."""

_ROOT: Final = "/run/container"
_SHARED: Final = "/run/nvidia"


def start_with_devices(comm: str, *, cgroup: str) -> int:
    """Start a process in a container that has the driver's device files, made for it."""

    def enter() -> None:
        _begin()
        Path(f"{_ROOT}/dev").mkdir()
        actions.make_device_files(f"{_ROOT}/dev")
        _enter()

    with _root():
        return processes.start(comm, cgroup=cgroup, enter=enter)


def start_driver(comm: str) -> int:
    """Start a process like the vendor's driver container, which mounts its root for the machine."""

    def enter() -> None:
        _begin()
        _bind(_SHARED, f"{_ROOT}{_SHARED}")
        _enter()
        _bind("/", f"{_SHARED}/driver")

    Path(f"{_SHARED}/driver").mkdir(parents=True, exist_ok=True)
    with _root():
        return processes.start(comm, enter=enter)


def in_agent(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a container that has the host's root, with mounts both ways."""
    reading, writing = os.pipe()
    with _root():
        pid = os.fork()
        if pid == 0:
            _answer(writing, lambda: function(*args, **kwargs))
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            answer = pickle.load(file)  # noqa: S301
        os.waitpid(pid, 0)
    if isinstance(answer, Raised):
        raise OSError(f"in the container:\n{answer.traceback}")
    return answer.value


def _answer(writing: int, function: Callable[[], object]) -> NoReturn:
    try:
        _begin()
        _bind("/", f"{_ROOT}{HOST}")
        _enter()
        answer = Returned(function())
    except Exception:  # noqa: BLE001  (the caller raises it)
        answer = Raised(traceback.format_exc())
    with os.fdopen(writing, "wb") as file:
        pickle.dump(answer, file)
    os._exit(0)


@contextmanager
def _root() -> Generator[None]:
    """Mount a root for a container until the container has entered it."""
    Path(_ROOT).mkdir(exist_ok=True)
    system_calls.mount("root", _ROOT, "tmpfs")
    try:
        yield
    finally:
        system_calls.unmount(_ROOT)


def _begin() -> None:
    """Begin a mount namespace, in which mounts below the container's root are its own."""
    system_calls.enter_own_mounts()
    system_calls.mount("", _ROOT, "", MS_PRIVATE)
    system_calls.mount(_ROOT, _ROOT, "", MS_BIND)


def _enter() -> None:
    Path(f"{_ROOT}/proc").mkdir()
    system_calls.mount("proc", f"{_ROOT}/proc", "proc")
    system_calls.enter_root(_ROOT)


def _bind(source: str, target: str) -> None:
    Path(target).mkdir(parents=True, exist_ok=True)
    system_calls.mount(source, target, "", MS_BIND | MS_REC)
