"""A process that is the simulated API server with a fleet of full-sized nodes on it.

`python -m bench.fleet_server COUNT [LABEL …]` prints `{"url", "token", "revision"}` when all nodes
exist, with each of these labels `true` on every node. For each line `CHANGES PER_SECOND` on
stdin it writes that many changes (0 per second: without a limit) and prints `{"wrote", "seconds",
"revision", "mib", "journal"}`. It ends with its stdin.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence

from bench.resident import resident
from libs.kube.client import Kube
from libs.kube.resources import NODES
from libs.policy.crds import CEL_RULES
from libs.runtime.clock import SystemClock
from libs.runtime.env import RandomIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.kubelet.hardware import KERNEL, Hardware, node

TOKEN = "fleet"


async def main(count: int, labels: Sequence[str]) -> None:
    """Fill the server, serve it, and change nodes as commanded on stdin."""
    clock = SystemClock()
    server = ApiServer(clock=clock, ids=RandomIds(), random=random.Random(1), rules=CEL_RULES)
    server.add_token(TOKEN, "bench")
    kubelet = Kube(server.transport(user="bench"), manager="kubelet", clock=clock)
    people = Kube(server.transport(user="bench"), manager="bench", clock=clock)
    hardware = Hardware(full=True, labels=dict.fromkeys(labels, "true"))
    for number in range(count):
        name = f"gpu-{number:05}"
        await kubelet.create(
            NODES,
            node(
                name,
                hardware,
                ip="10.0.0.1",
                boot_id=f"boot-{number}",
                kernel=KERNEL,
                now=clock.now(),
            ),
        )
    async with serve_http(server) as http:
        _print_json(url=http.url, token=TOKEN, revision=await _revision(people))
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            changes, rate = map(int, line.split())
            started = time.perf_counter()
            for n in range(changes):
                await _change(people, f"gpu-{n % count:05}", n)
                ahead = n / rate - (time.perf_counter() - started) if rate else 0.0
                await asyncio.sleep(max(0.0, ahead))
            _print_json(
                wrote=changes,
                seconds=time.perf_counter() - started,
                revision=await _revision(people),
                mib=resident(),
                journal=len(server.journal),
            )


async def _change(kube: Kube, name: str, number: int) -> None:
    change = {"metadata": {"annotations": {"bench.example/change": str(number)}}}
    await kube.request(
        "PATCH", NODES.path(name=name), body=change, content_type="application/merge-patch+json"
    )


async def _revision(kube: Kube) -> int:
    return int((await kube.list_page(NODES, limit=1)).resource_version)


def _print_json(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
