"""How many GPUs of each node are busy, and how hot, from the page of the fleet's GPUs."""

import re
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from libs.ctl.failures import ExitCode, Failure
from libs.fleet.node import GpuUse
from libs.fleet.state import FleetState
from libs.fleet.status import Source
from libs.kube.errors import KubeError
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.requests import Request
from libs.runtime.clock import Clock

_EVERY: Final = 15.0
"""Seconds between two readings: as often as the nodes measure."""
_SHARE: Final = 40.0
"""A reading may take one in so many seconds of CPU: the page of a large fleet has megabytes."""
_SAMPLE: Final = re.compile(
    rb'^DCGM_FI_DEV_GPU_(UTIL|TEMP)\{gpu="(\d+)"[^\n]*?[Hh]ostname="([^"\n]+)"[^\n]*\} (\S+)$',
    re.MULTILINE,
)


def require_address(url: str) -> None:
    """Fail unless the text is the address of a page."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"--telemetry {url!r} is no address: write http://HOST:PORT/metrics",
        )


class PageReader:
    """Reads a page as it arrives, without ever holding it whole. Pure."""

    def __init__(self) -> None:
        self._rest = b""
        self._busy: dict[str, set[bytes]] = {}
        self._gpus: dict[str, set[bytes]] = {}
        self._hottest: dict[str, float] = {}

    def feed(self, chunk: bytes) -> None:
        """Take in the next part of the page; what follows its last line is kept for the next."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._rest += chunk
            return
        text, self._rest = self._rest + whole, rest
        for kind, gpu, host, value in _SAMPLE.findall(text):
            node, number = host.decode(errors="replace"), float(value)
            self._gpus.setdefault(node, set()).add(gpu)
            if kind == b"TEMP":
                self._hottest[node] = max(number, self._hottest.get(node, number))
            elif number > 0:
                self._busy.setdefault(node, set()).add(gpu)

    def gpus(self) -> Mapping[str, GpuUse]:
        """Return the GPUs by node. One that MIG divides is not measured, and counts as not busy."""
        return {
            node: GpuUse(len(self._busy.get(node, ())), len(gpus), self._hottest.get(node))
            for node, gpus in self._gpus.items()
        }


class TelemetrySource:
    """The page, read again and again."""

    def __init__(self, url: str, state: FleetState, *, clock: Clock) -> None:
        parts = urlsplit(url)
        self._base, self._path = f"{parts.scheme}://{parts.netloc}", parts.path or "/metrics"
        self._state = state
        self._clock = clock
        self._read_at: float | None = None
        self._problem = ""

    async def run(self) -> None:
        """Read until cancelled, as often as the size of the page allows."""
        async with HttpTransport(self._base, credentials=StaticToken()) as transport:
            while True:
                began = time.process_time()
                try:
                    await self._read(transport)
                except (KubeError, ValueError) as error:
                    self._problem = str(error)
                used = time.process_time() - began
                await self._clock.sleep(max(_EVERY, used * _SHARE))

    async def _read(self, transport: HttpTransport) -> None:
        """Read the page once. Figures of before stay where it does not answer."""
        reader = PageReader()
        async with transport.open(Request(method="GET", path=self._path)) as response:
            if response.status != 200:
                self._problem = f"{self._base}{self._path} answers {response.status}"
                return
            async for chunk in response.chunks():
                reader.feed(chunk)
        self._state.gpus_measured(reader.gpus())
        self._problem, self._read_at = "", self._clock.monotonic()

    def source(self) -> Source:
        age = None if self._read_at is None else self._clock.monotonic() - self._read_at
        return Source(name=self._base, gives="GPUs", age=age, problem=self._problem)
