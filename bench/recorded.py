"""A process that serves 5,000 recorded nodes, and events of them, as fast as it can send bytes.

It replaces an API server, so that only the client is measured.
"""

import asyncio
import sys
from contextlib import suppress

import msgspec
from aiohttp import web

from libs.testing.cluster.kubelet.hardware import KERNEL, Hardware, node

NODES = 5_000
PAGE = 500
REVISION = 1_000_000

_MANAGED = [
    {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-21T06:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {f"f:{manager}.example/{n}": {} for n in range(40)}}
        },
    }
    for manager in ("kubelet", "nfd-master", "kube-controller-manager")
]


def recorded(number: int, *, revision: int) -> bytes:
    """Return a node of realistic size."""
    manifest = node(
        f"gpu-{number:05}",
        Hardware(full=True),
        ip="10.0.0.1",
        boot_id=f"boot-{number}",
        kernel=KERNEL,
        now=1.8e9,
    )
    manifest["metadata"] |= {
        "uid": f"00000000-0000-4000-8000-{number:012}",
        "resourceVersion": str(revision),
        "creationTimestamp": "2026-11-21T06:00:00Z",
        "managedFields": _MANAGED,
    }
    return msgspec.json.encode(manifest)


def pages() -> list[bytes]:
    """Return the list of all nodes in pages of 500."""
    nodes = [recorded(number, revision=number + 1) for number in range(NODES)]
    last = NODES // PAGE - 1
    bodies: list[bytes] = []
    for page in range(last + 1):
        meta = {"resourceVersion": str(REVISION)}
        if page < last:
            meta |= {"continue": str(page + 1), "remainingItemCount": NODES - (page + 1) * PAGE}
        items = b",".join(nodes[page * PAGE : (page + 1) * PAGE])
        bodies.append(
            b'{"kind":"NodeList","apiVersion":"v1","metadata":%b,"items":[%b]}\n'
            % (msgspec.json.encode(meta), items)
        )
    return bodies


def event(number: int) -> bytes:
    """Return a watch event of one node."""
    changed = recorded(number % NODES, revision=REVISION + 1 + number)
    return b'{"type":"MODIFIED","object":%b}\n' % changed


async def serve(events: int) -> None:
    """Serve until stdin ends; the first line of output is the port."""
    listed, watched = pages(), [event(number) for number in range(events)]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch", "").lower() != "true":
            body = listed[int(request.query.get("continue", "0"))]
            return web.Response(body=body, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "application/json"})
        with suppress(ConnectionError):  # a client that has enough events disconnects
            await response.prepare(request)
            for first in range(0, events, 50):
                await response.write(b"".join(watched[first : first + 50]))
            await asyncio.Event().wait()
        return response

    app = web.Application()
    app.router.add_get("/api/v1/nodes", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
