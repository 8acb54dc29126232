"""A process that holds a cache of a server's nodes, or only receives them.

`python -m bench.fleet_client URL TOKEN cache` says `{"synced", "mib"}` when all are there; then for
each revision on stdin `{"behind", "mib", "told"}` when it has come, so many seconds later.
With `pages` instead it receives the same pages and drops each once it is whole; with `bytes` it
drops them as they come. Then it says only `{"synced"}`.
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
    rest: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _Meta


async def cache_nodes(url: str, token: str) -> None:
    """Keep a cache until stdin ends."""
    async with HttpTransport(url, credentials=StaticToken(token)) as transport:
        kube = Kube(transport, manager="bench", clock=SystemClock())
        cache = Cache(kube, NODES, env=make_env())
        told = 0

        def count(_old: Node | None, _new: Node | None) -> None:
            nonlocal told
            told += 1

        began = _start()
        running = asyncio.create_task(cache.run())
        await cache.wait_synced()
        _say(synced=time.perf_counter() - began, mib=resident())
        cache.on_change(count)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            began = time.perf_counter()
            while cache.revision < int(line):
                await asyncio.sleep(0.001)
            _say(behind=time.perf_counter() - began, mib=resident(), told=told)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def receive_only(url: str, token: str, *, whole: bool) -> None:
    """Send the same requests one after another without decoding the responses."""
    headers = {"accept-encoding": "identity", "authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        began = _start()
        rest = ""
        while True:
            query = {"limit": "500", **({"continue": rest} if rest else {})}
            async with session.get(f"{url}/api/v1/nodes", params=query) as response:
                page = await (response.read() if whole else _head(response))
            meta = page[page.index(b'"metadata":') : page.index(b"}") + 1]
            rest = msgspec.json.decode(b"{" + meta + b"}", type=_Page).metadata.rest
            if not rest:
                break
        _say(synced=time.perf_counter() - began)


async def _head(response: aiohttp.ClientResponse) -> bytes:
    head = await response.content.read(1024)
    async for _ in response.content.iter_any():
        pass
    return head


def _start() -> float:
    # A collection of what the imports have left is due at some time, but is no part of a list.
    gc.collect()
    return time.perf_counter()


def _say(**said: object) -> None:
    print(json.dumps(said), flush=True)


async def main(url: str, token: str, mode: str) -> None:
    match mode:
        case "cache":
            await cache_nodes(url, token)
        case "pages" | "bytes":
            await receive_only(url, token, whole=mode == "pages")
        case _:
            raise ValueError(f"no mode {mode}; there are cache, pages and bytes")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
