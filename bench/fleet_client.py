"""A process that holds a cache of a server's nodes, or only receives them.

`python -m bench.fleet_client URL TOKEN cache` prints `{"synced", "mib"}` when all nodes are in the
cache; then, for each revision on stdin, `{"behind", "mib", "delivered"}` when the cache reaches it.
With `pages` instead of `cache` it receives the same pages and drops each when it is complete; with
`bytes` it drops them as they arrive. Then it prints only `{"synced"}`.
"""

import asyncio
import gc
import json
import sys
import time
from contextlib import suppress

import aiohttp
import msgspec

from bench.resident import resident
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.resources import NODES
from libs.kube.views import Node
from libs.runtime.clock import SystemClock
from libs.testing.simulation import make_env


class _Meta(msgspec.Struct):
    continue_token: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _Meta


async def cache_nodes(url: str, token: str) -> None:
    """Keep a cache until stdin ends."""
    async with HttpTransport(url, credentials=StaticToken(token)) as transport:
        kube = Kube(transport, manager="bench", clock=SystemClock())
        cache = Cache(kube, NODES, env=make_env())
        delivered = 0

        def count(_old: Node | None, _new: Node | None) -> None:
            nonlocal delivered
            delivered += 1

        started = _start()
        running = asyncio.create_task(cache.run())
        await cache.wait_synced()
        _print_json(synced=time.perf_counter() - started, mib=resident())
        cache.on_change(count)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            started = time.perf_counter()
            while cache.revision < int(line):
                await asyncio.sleep(0.001)
            _print_json(behind=time.perf_counter() - started, mib=resident(), delivered=delivered)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def receive_only(url: str, token: str, *, whole: bool) -> None:
    """Send the same requests one after another without decoding the responses."""
    headers = {"accept-encoding": "identity", "authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        started = _start()
        next_page = ""
        while True:
            query = {
                "limit": "500",
                **({"continue": next_page} if next_page else {}),
            }
            async with session.get(f"{url}/api/v1/nodes", params=query) as response:
                page = await (response.read() if whole else _head(response))
            meta = page[page.index(b'"metadata":') : page.index(b"}") + 1]
            next_page = msgspec.json.decode(b"{" + meta + b"}", type=_Page).metadata.continue_token
            if not next_page:
                break
        _print_json(synced=time.perf_counter() - started)


async def _head(response: aiohttp.ClientResponse) -> bytes:
    head = await response.content.read(1024)
    async for _ in response.content.iter_any():
        pass
    return head


def _start() -> float:
    # Otherwise the garbage of the imports may be collected while the list is measured.
    gc.collect()
    return time.perf_counter()


def _print_json(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def main(url: str, token: str, mode: str) -> None:
    match mode:
        case "cache":
            await cache_nodes(url, token)
        case "pages" | "bytes":
            await receive_only(url, token, whole=mode == "pages")
        case _:
            raise ValueError(f"unknown mode {mode}: expected cache, pages or bytes")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
