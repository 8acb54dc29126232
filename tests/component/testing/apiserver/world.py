"""A simulated server in virtual time, clients of it, and the few objects that the tests write."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from libs.kube.client import Kube
from libs.kube.transport import Request, Response
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run

T = TypeVar("T")
JsonObject = dict[str, Any]

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
CONFIG = "/api/v1/namespaces/default/configmaps"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CUSTOM_OBJECTS = "/apis/x.dev/v1/namespaces/default/things"

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class ApiServerWorld:
    """The server, and whoever asks it; answers are taken as they are, refusals too."""

    def __init__(self, sim: Sim, **given: Any) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random, **given)
        self.kube = self.client("admin")

    def client(self, user: str) -> Kube:
        """A client of this user, who is the manager too."""
        return Kube(self.server.transport(user=user), manager=user, clock=self.sim.clock)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        user: str = "admin",
        **query: str,
    ) -> tuple[int, JsonObject]:
        """The code, and the body as it was read."""
        headers = {"content-type": content_type, "user-agent": f"{user}/1"}
        request = _request(method, path, body, query=query, headers=headers)
        code, _, answer = await self.answer(request, user=user)
        return code, answer

    async def post(self, path: str, body: Any) -> tuple[int, Mapping[str, str], JsonObject]:
        """The code, the headers and the body."""
        return await self.answer(_request("POST", path, body, query={}, headers={}), user="admin")

    async def answer(
        self, request: Request, *, user: str
    ) -> tuple[int, Mapping[str, str], JsonObject]:
        """The same of any request."""
        async with self.server.transport(user=user).open(request) as answer:
            raw = await answer.body()
            return answer.status, answer.headers, json.loads(raw) if raw[:1] == b"{" else {}

    async def node(self, name: str, **labels: str) -> JsonObject:
        """A new node."""
        code, node = await self.ask("POST", NODES, {"metadata": {"name": name, "labels": labels}})
        assert code == 201
        return node

    async def config(self, name: str, **labels: str) -> JsonObject:
        """A new config map."""
        code, made = await self.ask("POST", CONFIG, {"metadata": {"name": name, "labels": labels}})
        assert code == 201
        return made

    async def pod(self, name: str, *, node: str = "n1", phase: str = "Running") -> JsonObject:
        """A pod on a node."""
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}]}
        body = {"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec}
        code, _ = await self.ask("POST", PODS, body)
        assert code == 201
        ready = [{"type": "Ready", "status": "True"}]
        status = {"status": {"phase": phase, "conditions": ready}}
        code, pod = await self.ask("PATCH", f"{PODS}/{name}/status", status, content_type=MERGE)
        assert code == 200
        return pod


def _request(
    method: str, path: str, body: Any, *, query: Mapping[str, str], headers: Mapping[str, str]
) -> Request:
    raw = b"" if body is None else json.dumps(body).encode()
    return Request(method=method, path=path, query=query, headers=headers, body=raw)


async def events(answer: Response) -> AsyncIterator[JsonObject]:
    """The events of a watch."""
    rest = b""
    async for chunk in answer.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


def describe_event(event: JsonObject) -> tuple[str, str]:
    """What happened to whom."""
    return event["type"], event["object"]["metadata"].get("name", "")


def run_world(
    main: Callable[[ApiServerWorld], Coroutine[Any, Any, T]], *, seed: int = 1, **given: Any
) -> T:
    """Let it happen in virtual time."""

    async def whole(sim: Sim) -> T:
        return await main(ApiServerWorld(sim, **given))

    return run(whole, seed=seed)
