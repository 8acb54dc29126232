"""An installation as a laptop sees it: NATS runs in pods, which only the API server reaches."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from libs.bus.nats.bus import connect
from libs.bus.sessions import Session
from libs.contracts.identities import Identity, Writer
from libs.contracts.nats_names import CA_CONFIG_MAP, CA_FILE, PODS, PORT, SERVICE
from libs.contracts.subjects import STREAMS
from libs.kube import resources
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from libs.testing.apiserver.portforward import ForwardCall
from libs.testing.certificates import CertificateAuthority
from libs.testing.nats import NatsServer
from libs.testing.sign_in import TokenSignIn
from libs.testing.simulation import make_env
from libs.testing.tokens import TokenIssuer
from tests.component.ctl.world import NO_ADDRESSES, World, make_world

NAMESPACE = "gpu-operator"
SCHEDULER, PERSON = Identity(writer=Writer.SCHEDULER), Identity(writer=Writer.CTL)


class IssuedTokens(dict[str, Session]):
    """The tokens that are known, and those that the API server gave people."""

    def __init__(self, known: Mapping[str, Session], issuer: TokenIssuer) -> None:
        super().__init__(known)
        self._issuer = issuer

    def get(self, token: str, default: Any = None, /) -> Any:
        claims = self._issuer.verified(token)
        if claims is None or claims["aud"] != ["sluice"]:
            return super().get(token, default)
        return Session(PERSON, "a-person")


class Laptop:
    """A person's machine with a kubeconfig, and nothing else."""

    def __init__(self, world: World, stack: AsyncExitStack) -> None:
        self.world = world
        self.run = world.run
        self.authority = CertificateAuthority()
        self._stack = stack

    def use_context_of(self, namespace: str) -> None:
        """Name a namespace in the context of the kubeconfig."""
        config = Path(self.world.environ["KUBECONFIG"])
        content = json.loads(config.read_text())
        content["contexts"][0]["context"]["namespace"] = namespace
        config.write_text(json.dumps(content))

    async def install(self, namespace: str = NAMESPACE) -> None:
        """Create what an installation has for people."""
        kube = self.world.kube
        await kube.create(NAMESPACES, {"metadata": {"name": namespace}})
        account = {"metadata": {"name": "sluice-ctl"}}
        await kube.create(SERVICE_ACCOUNTS, account, namespace=namespace)
        ca = {"metadata": {"name": CA_CONFIG_MAP}, "data": {CA_FILE: self.authority.pem.decode()}}
        await kube.create(CONFIG_MAPS, ca, namespace=namespace)

    async def start_nats(self, *, name: str = f"{SERVICE}.{NAMESPACE}.svc") -> NatsServer:
        """Start NATS with sign-in and TLS, as the scheduler's connection, but no pod of it."""
        world, issuer = self.world, self.world.server.issuer
        world.sign_in = sign_in = TokenSignIn((SCHEDULER,), world.folder)
        sign_in.pods = IssuedTokens(sign_in.pods, issuer)
        names = (name, "127.0.0.1")
        pair = self.authority.issue(world.folder, "nats", names=names)
        ca_file = str(self.authority.write(world.folder / "nats-ca.pem"))
        self.nats = nats = NatsServer(config=sign_in.config(), tls=pair)
        await self._stack.enter_async_context(nats)
        await self._stack.enter_async_context(sign_in.run(nats.url, ca_file=ca_file))
        connected = connect(
            url=nats.url,
            identity=SCHEDULER,
            env=make_env(),
            credentials=sign_in.credentials(SCHEDULER, ca_file=ca_file),
        )
        world.bus = await self._stack.enter_async_context(connected)
        for stream in STREAMS:
            await world.bus.ensure(stream)
        return nats

    async def add_pod(
        self, index: int = 0, *, to: NatsServer | None, ready: bool = True, phase: str = "Running"
    ) -> str:
        """Create a pod of NATS; what listens on its port is this server, or nothing."""
        name, kube = PODS[index], self.world.kube
        spec = {"nodeName": "node-1", "containers": [{"name": "nats", "image": "nats"}]}
        wanted = {"metadata": {"name": name}, "spec": spec}
        await kube.create(resources.PODS, wanted, namespace=NAMESPACE)
        await self.set_ready(name, ready, phase=phase)
        if to is not None:
            call = ForwardCall(namespace=NAMESPACE, pod=name, port=PORT)
            self.world.server.listening[call] = to.port
        return name

    async def set_ready(self, name: str, ready: bool, *, phase: str = "Running") -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        await self.world.kube.request(
            "PATCH",
            resources.PODS.path(namespace=NAMESPACE, name=name, subresource="status"),
            body={"status": {"phase": phase, "conditions": conditions}},
            content_type=MERGE_PATCH,
        )


@asynccontextmanager
async def make_laptop(folder: Path) -> AsyncGenerator[Laptop]:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(make_world(folder))
        world.environ |= NO_ADDRESSES
        yield Laptop(world, stack)
