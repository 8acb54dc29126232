"""The parts of sign-in on a simulated API server, in virtual time; the test is nats-server."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from libs.bus.callout import CalloutKeys, new_seeds
from libs.bus.sessions import Session
from libs.contracts.identities import Identity
from libs.kube.client import Kube
from libs.kube.resources import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from libs.runtime.metrics import Metrics
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run
from libs.testing.tokens import Bound
from services.signin.key_files import KeyFiles
from services.signin.key_sources import ClusterKeys
from services.signin.parts import SignInParts
from tests.support import played_by
from tests.unit.signin.callout_server import Answer, CalloutServer
from tests.unit.signin.tokens import NAMESPACE

CLUSTER = "default"
US = "us"
"""The user of sign-in at the API server."""


class Connections:
    """The connections that a monitor would see, set by the test."""

    def __init__(self) -> None:
        self.open: list[Session] = []
        self.closed: list[Session] = []
        self.matches: list[Callable[[Session], bool]] = []

    def count(self, identity: Identity) -> int:
        return sum(session.identity == identity for session in self.open)

    def close(self, matches: Callable[[Session], bool]) -> int:
        self.matches.append(matches)
        closed = [session for session in self.open if matches(session)]
        self.open = [session for session in self.open if session not in closed]
        self.closed += closed
        return len(closed)


class Agent:
    """An agent's pod on a node, and its tokens."""

    def __init__(self, world: "World", pod: Bound, node: Bound, account: Bound) -> None:
        self._world = world
        self.pod = pod
        self.node = node
        self.account = account

    def claims(self, **overrides: Any) -> dict[str, Any]:
        claims = self._world.server.issuer.claims(
            namespace=NAMESPACE, account=self.account, pod=self.pod, node=self.node
        )
        return claims | overrides

    def token(self, **overrides: Any) -> str:
        return self._world.server.issuer.sign(self.claims(**overrides))

    def session(self, token_id: str = "1") -> Session:
        """Return the session that a token opens."""
        writer = self.account.name.removeprefix("sluice-")
        identity: Any = {"cluster": CLUSTER, "writer": writer, "node": self.node.name}
        uids = [self.account.uid[:8], self.node.uid[:8], token_id[:8]]
        return Session(Identity(**identity), ":".join([self.pod.uid, *uids]))


class World:
    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.metrics = Metrics(version="test")
        env = sim.env("sign-in", metrics=self.metrics)
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random)
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=sim.clock)
        self.keys = CalloutKeys.from_seeds(*new_seeds())
        self.key_files = KeyFiles((), clock=sim.clock)
        self.key_files.pairs = (self.keys,)
        self.connections = Connections()
        self.nats = CalloutServer(sim.clock)
        self.answers: dict[str, bytes] = {}
        self.send_seconds = 0.0
        """Seconds that sending an answer takes."""
        self._asked = 0
        transport = self.server.transport(user=US)
        self.parts = SignInParts(
            Kube(transport, manager=US, clock=env.clock),
            key_files=self.key_files,
            source=ClusterKeys(transport, clock=env.clock),
            connections=self.connections,
            namespace=NAMESPACE,
            cluster=CLUSTER,
            send=self._answered,
            env=env,
        )

    async def _answered(self, reply: str, data: bytes) -> None:
        await self.clock.sleep(self.send_seconds)
        self.answers[reply] = data

    # The cluster.

    async def account(self, writer: str) -> Bound:
        """Create the ServiceAccount of a writer."""
        name = f"sluice-{writer}"
        made = await self.kube.create(
            SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=NAMESPACE
        )
        return Bound(name, made.metadata.uid)

    async def node(self, name: str) -> Bound:
        made = await self.kube.create(NODES, {"metadata": {"name": name}})
        return Bound(name, made.metadata.uid)

    async def pod(self, name: str, account: Bound, node: Bound) -> Bound:
        spec = {
            "serviceAccountName": account.name,
            "nodeName": node.name,
            "containers": [{"name": "c", "image": "i"}],
        }
        made = await self.kube.create(
            PODS, {"metadata": {"name": name}, "spec": spec}, namespace=NAMESPACE
        )
        return Bound(name, made.metadata.uid)

    async def agent(self, writer: str = "driver", node: str = "gpu-1") -> Agent:
        """Create the account, node and pod of an agent."""
        account, on = await self.account(writer), await self.node(node)
        return Agent(self, await self.pod(f"{writer}-on-{node}", account, on), on, account)

    async def delete(self, agent: Agent) -> None:
        """Delete an agent's pod at once."""
        pod = agent.pod
        await self.kube.delete(PODS, pod.name, uid=pod.uid, namespace=NAMESPACE, grace=0)

    # Signing in.

    def ask(
        self,
        token: str,
        *,
        keys: CalloutKeys | None = None,
        host: str = "10.0.3.9",
        kind: str = "nats",
    ) -> str:
        """Send the request of a client, and return where its answer will be."""
        self._asked += 1
        reply = f"reply.{self._asked}"
        data = self.nats.ask(keys or self.keys, token, host=host, kind=kind)
        self.parts.responder.received(data, self.nats.xkey, reply)
        return reply

    def answer(self, reply: str, *, keys: CalloutKeys | None = None) -> Answer | None:
        """Return the answer, if there is one."""
        data = self.answers.get(reply)
        return None if data is None else self.nats.read(keys or self.keys, data)

    async def sign_in(self, token: str, *, kind: str = "nats", within: float = 9.0) -> Answer:
        """Return the answer to a client."""
        reply = self.ask(token, kind=kind)
        waited = 0.0
        while reply not in self.answers and waited < within:
            await self.clock.sleep(0.01)
            waited += 0.01
        answer = self.answer(reply)
        assert answer is not None, "no answer"
        return answer

    async def settled(self) -> None:
        """Wait until the watches have delivered what was changed."""
        await self.clock.sleep(1.0)

    def value(self, name: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(f"sluice_signin_{name}", labels)
        assert value is not None
        return value


Story = Callable[[World], Coroutine[Any, Any, None]]


def play(story: Story, *, before: Story | None = None) -> list[Any]:
    """Run a story; return what was logged. `before` happens before the parts of sign-in start."""

    async def main(sim: Sim) -> None:
        world = World(sim)
        await world.kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        if before is not None:
            await before(world)
        tasks = [asyncio.create_task(task, name=name) for name, task in world.parts.tasks()]
        try:
            await world.settled()
            await story(world)
            for task in tasks:
                assert not task.done(), task.exception()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    with structlog.testing.capture_logs() as logs:
        run(main, seed=1)
    return logs


in_world = played_by(play)
