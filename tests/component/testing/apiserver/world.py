"""A simulated API server in virtual time, its clients, and the objects that the tests write."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from libs.kube.client import Kube
from libs.kube.requests import Request, Response
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run
from tests.support import played_by

T = TypeVar("T")
JsonObject = dict[str, Any]

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
CONFIG = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class ApiServerWorld:
    """The server and its clients. Requests return status and body, refusals included."""

    def __init__(self, sim: Sim, **options: Any) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random, **options)
        self.kube = self.client("admin")

    def client(self, user: str) -> Kube:
        """Return a client that writes as this user and field manager."""
        return Kube(self.server.transport(user=user), manager=user, clock=self.sim.clock)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        user: str = "admin",
        **query: str,
    ) -> tuple[int, JsonObject]:
        raw_body = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": content_type, "accept": accept, "user-agent": f"{user}/1"}
        request = Request(method=method, path=path, query=query, headers=headers, body=raw_body)
        async with self.server.transport(user=user).open(request) as response:
            raw = await response.body()
            return response.status, json.loads(raw) if raw[:1] == b"{" else {}

    async def node(self, name: str, **labels: str) -> JsonObject:
        code, node = await self.request(
            "POST", NODES, {"metadata": {"name": name, "labels": labels}}
        )
        assert code == 201
        return node

    async def config(self, name: str, **labels: str) -> JsonObject:
        code, config = await self.request(
            "POST", CONFIG, {"metadata": {"name": name, "labels": labels}}
        )
        assert code == 201
        return config


async def watch_events(response: Response) -> AsyncIterator[JsonObject]:
    rest = b""
    async for chunk in response.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


def describe_event(event: JsonObject) -> tuple[str, str]:
    """Return the event's type and the object's name."""
    return event["type"], event["object"]["metadata"].get("name", "")


def run_world(
    main: Callable[[ApiServerWorld], Coroutine[Any, Any, T]], *, seed: int = 1, **options: Any
) -> T:
    """Run a test body in virtual time; `options` configure the server."""

    async def with_world(sim: Sim) -> T:
        return await main(ApiServerWorld(sim, **options))

    return run(with_world, seed=seed)


in_world = played_by(run_world)
