"""The liveness probes of a kubelet, and the restarts that they would have caused."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp

PERIOD_SECONDS: Final = 2.0
TIMEOUT_SECONDS: Final = 1.0
FAILURES: Final = 3
"""Consecutive failures after which a kubelet restarts a container."""


class ProbeMonitor:
    """Probe every process; a process in `stopped` cannot answer and is not judged."""

    def __init__(self, urls: Callable[[], Mapping[str, str]], *, stopped: set[str]) -> None:
        """`urls` returns the liveness page of each running process by name."""
        self._urls = urls
        self._stopped = stopped
        self._failures: dict[tuple[str, str], int] = {}
        self.probes = 0
        self.restarts: list[str] = []

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                urls = self._urls()
                probes = [self._probe(session, name, url) for name, url in urls.items()]
                await asyncio.gather(*probes)
                self._failures = {
                    (name, url): count
                    for (name, url), count in self._failures.items()
                    if urls.get(name) == url and name not in self._stopped
                }
                await asyncio.sleep(PERIOD_SECONDS)

    async def _probe(self, session: aiohttp.ClientSession, name: str, url: str) -> None:
        if name in self._stopped:
            return
        self.probes += 1
        failure = await _failure(session, url)
        failures = self._failures.get((name, url), 0) + 1 if failure else 0
        self._failures[name, url] = failures
        if failures == FAILURES and name not in self._stopped:
            self.restarts.append(f"{name}: {failure}")


async def _failure(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url) as response:
            return "" if response.status == 200 else await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return str(error) or type(error).__name__
