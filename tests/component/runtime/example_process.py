"""A run of the example program: its log and exit code."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from libs.testing.child_process import bytecode_environ

EXAMPLE = Path(__file__).with_name("example.py")


class ExampleProcess:
    """A run of the example, with its log line by line."""

    def __init__(self, *arguments: str, **environ: str) -> None:
        self.lines: list[str] = []
        self.metrics_port = 0
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLE), *(arguments or ["both"])],
            env={
                **bytecode_environ(),
                "PATH": os.environ["PATH"],
                "SLUICE_METRICS_HOST": "127.0.0.1",
                "SLUICE_METRICS_PORT": "0",
                "SLUICE_PROBES_HOST": "127.0.0.1",
                "SLUICE_PROBES_PORT": "0",
                **environ,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, event: str, **fields: object) -> dict[str, Any]:
        """Read the log up to an event, and return the event."""
        for line in cast(IO[str], self._process.stderr):
            self.lines.append(line.rstrip("\n"))
            entry = json.loads(line)
            if entry["event"] == event and fields.items() <= entry.items():
                return entry
        raise AssertionError("\n".join([f"no {event!r} in the log:", *self.lines]))

    def ready(self) -> int:
        """Wait until both services are ready; return the port of the probes."""
        port = self.until("probe server started")["port"]
        self.metrics_port = self.until("metrics server started")["port"]
        for _ in range(2):
            self.until("phase entered", phase="ready")
        return port

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Read the rest of the log, and return the exit code."""
        out, err = self._process.communicate(timeout=60)
        self.out = out
        self.lines += err.splitlines()
        return self._process.returncode

    def events(self, **fields: object) -> list[dict[str, Any]]:
        """Return the events with these fields."""
        entries = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [entry for entry in entries if fields.items() <= entry.items()]

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


Launch = Callable[..., ExampleProcess]
