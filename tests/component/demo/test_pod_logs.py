"""Logs of containers, as `kubectl logs` asks the demo's API server for them."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from demo.pod_logs import LogServer, log_reply
from libs.kube.requests import Request
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.status import StatusError

RUNNING, ENDED = "containerd://2", "containerd://1"
WRITTEN = {RUNNING: ["builds", "loads", "works"], ENDED: ["gives up"]}


def logs(container_id: str) -> Sequence[str]:
    return WRITTEN[container_id]


def pod(**status: Any) -> dict[str, Any]:
    statuses = [{"name": "driver", "containerID": RUNNING, **status}]
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "driver"}], "initContainers": [{"name": "gate"}]},
        "status": {"containerStatuses": statuses},
    }


async def text(found: dict[str, Any], **query: str) -> str:
    reply = await log_reply(found, query, logs)
    assert reply.headers["content-type"].startswith("text/plain")
    assert reply.body is not None
    return reply.body.decode()


async def test_the_server_serves_the_log_of_a_pod_and_all_else_as_before() -> None:
    numbers = random.Random(1)
    server = LogServer(
        logs=logs, clock=SystemClock(), ids=SeededIds(numbers), random=random.Random(2)
    )
    path = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "driver", "image": "i"}]}
    created = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}

    async def send(method: str, path: str, body: object = None, **query: str) -> tuple[int, str]:
        request = Request(
            method=method,
            path=path,
            query=query,
            headers={"content-type": "application/json"},
            body=b"" if body is None else msgspec.json.encode(body),
        )
        reply = await server.handle(request, user="person")
        return reply.status, (reply.body or b"").decode()

    assert (await send("POST", path, created))[0] == 201
    code, answer = await send("GET", f"{path}/p/log")
    assert (code, "is waiting to start" in answer) == (400, True)
    running = {"status": {"containerStatuses": pod()["status"]["containerStatuses"]}}
    code, answer = await send("GET", f"{path}/p")
    assert code == 200
    body = {**msgspec.json.decode(answer), **running}
    assert (await send("PUT", f"{path}/p/status", body))[0] == 200
    assert await send("GET", f"{path}/p/log", tailLines="1") == (200, "works\n")
    code, answer = await send("GET", f"{path}/other/log")
    assert (code, 'pods \\"other\\" not found' in answer) == (404, True)


async def test_a_container_shows_its_last_lines() -> None:
    assert await text(pod()) == "builds\nloads\nworks\n"
    assert await text(pod(), container="driver", tailLines="2") == "loads\nworks\n"
    assert await text(pod(), tailLines="0") == ""
    assert await text(pod(), tailLines="9") == "builds\nloads\nworks\n"


async def test_the_container_before_is_shown_on_request() -> None:
    crashed = pod(lastState={"terminated": {"containerID": ENDED}})
    assert await text(crashed, previous="true") == "gives up\n"


@pytest.mark.parametrize(
    ("found", "query", "message"),
    [
        (pod(), {"container": "x"}, "container x is not valid for pod p"),
        (pod(), {"previous": "true"}, "previous terminated container"),
        (pod(), {"container": "gate"}, 'container "gate" in pod "p" is waiting to start'),
        (pod(containerID=""), {}, 'container "driver" in pod "p" is waiting to start'),
    ],
)
async def test_what_has_no_log_is_named(
    found: dict[str, Any], query: dict[str, str], message: str
) -> None:
    with pytest.raises(StatusError, match=message):
        await text(found, **query)
