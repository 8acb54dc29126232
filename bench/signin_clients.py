"""A process with the connections of many agents.

`python -m bench.signin_clients JOB` connects all and then answers each line on stdin with `{"up",
"last_up", "downs", "closed", "cpu"}`: how many are connected, when the last connection came up (by
the monotonic clock of the machine), how often one broke, how many were given up, CPU seconds.
"""

import asyncio
import json
import logging
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import connect
from libs.bus.port import BusError
from libs.contracts.identities import Identity, Writer
from libs.testing.simulation import make_env

PATIENCE = 600.0


class Clients:
    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._up = 0
        self._last_up = 0.0
        self._downs = 0
        self._closed = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for agent, token_file in self._job["tokens"].items():
                group.create_task(self._live(agent, token_file))

    def report(self) -> dict[str, float]:
        return {
            "up": self._up,
            "last_up": self._last_up,
            "downs": self._downs,
            "closed": self._closed,
            "cpu": time.process_time(),
        }

    async def _live(self, agent: str, token_file: str) -> None:
        node, _, writer = agent.partition("/")
        with suppress(BusError):
            async with connect(
                url=self._job["url"],
                identity=Identity(writer=Writer(writer), node=node),
                env=make_env(random=random.Random(agent)),
                credentials=Credentials(token_file=token_file, ca_file=self._job["ca_file"]),
                wait=PATIENCE,
                spread=self._job["spread"],
            ) as bus:
                self._changed(True)
                bus.link.watch(self._changed)
                await bus.guard()
        self._closed += 1

    def _changed(self, up: bool) -> None:
        self._up += 1 if up else -1
        if up:
            self._last_up = time.monotonic()
        else:
            self._downs += 1


async def main(job_file: Path) -> None:
    clients = Clients(json.loads(job_file.read_text()))
    running = asyncio.create_task(clients.run())
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(clients.report()), flush=True)
    running.cancel()


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main(Path(sys.argv[1])))
