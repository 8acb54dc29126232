"""Real pynvml in a child process, as a test calls it."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from libs.testing.nvml import Return, StandIn
from tests.component.testing.nvml.client_process import Failure, Handle

ROOT = Path(__file__).parents[4]
PROGRAM = "from tests.component.testing.nvml.client_process import main; main()"


class Refused(Exception):
    """pynvml raised its error for a code."""

    def __init__(self, code: int) -> None:
        super().__init__(Return(code).name)
        self.code = code


@contextmanager
def refused(code: Return) -> Generator[None]:
    """Check that the block ends with pynvml's error for `code`."""
    with pytest.raises(Refused) as caught:
        yield
    assert Return(caught.value.code) is code


class Client:
    """A process that loads the library as the system's loader finds it, and its pynvml.

    Every function of pynvml is a method: `client.nvmlDeviceGetName(client.gpu(0))`.
    """

    def __init__(self, library: Path) -> None:
        self._library = library
        self._start()

    def _start(self) -> None:
        self._calls = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "LD_LIBRARY_PATH": str(self._library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def function(*arguments: Any) -> Any:
            self.send(name, *arguments)
            return self.receive()

        return function

    def send(self, name: str, *arguments: Any) -> None:
        """Begin a call; `receive` returns its result."""
        assert self._process.stdin
        self._calls += 1
        pickle.dump((name, arguments), self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout
        result = pickle.load(self._process.stdout)
        self._calls -= 1
        if isinstance(result, Failure):
            raise Refused(result.code)
        return result

    def open(self, stand_in: StandIn) -> None:
        """Initialise the library for a machine."""
        self.use(str(stand_in.path))
        self.nvmlInit()

    def gpu(self, index: int) -> Handle:
        return self.nvmlDeviceGetHandleByIndex(index)

    def clean(self) -> None:
        """Close the library for the next test; a process that still waits is replaced."""
        if self._calls:
            self.end()
            self._start()
        else:
            self.close_library()

    def close_library(self) -> None:
        """Shut the library down as often as it was initialised."""
        with refused(Return.UNINITIALIZED):
            while True:
                self.nvmlShutdown()

    def end(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
