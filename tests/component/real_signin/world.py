"""Sign-in between a real nats-server and a real API server, with the rights of an installation."""

import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from libs.bus.port import BusUnavailable
from libs.contracts.identities import Identity, Writer
from libs.kube.client import Kube
from libs.kube.errors import Forbidden
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.requests import Transport
from libs.kube.resources import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from libs.policy.installation import PEOPLE_ROLE, installation_objects, service_account_of
from libs.runtime.clock import SystemClock
from libs.testing.child_process import ChildProcess
from libs.testing.realkube.cluster import RealKube
from tests.component.kube.sandbox import ADMIN, NOBODY, Sandbox
from tests.component.kube.servers import RealServer, real
from tests.component.policy.strict_writes import apply
from tests.component.signin.world import Pod, World
from tests.security.world import RawClient
from tests.support import eventually

RBAC = "rbac.authorization.k8s.io"


class RealWorld:
    """The parts of `World`, and what only a real API server has."""

    def __init__(
        self, world: World, *, plane: RealKube, sandbox: Sandbox, admin: Transport, own: Transport
    ) -> None:
        self.signin = world
        self.plane = plane
        self.kube = world.kube
        self.namespace = world.namespace
        self.person = sandbox.kube(user=NOBODY, manager="kubectl")
        """A client of somebody without any rights, until `allow_people`."""
        self.own = Kube(own, manager="sluice-sign-in", clock=SystemClock())
        """A client with the rights of sign-in itself."""
        self._sandbox = sandbox
        self._admin = admin

    async def start(self) -> ChildProcess:
        return await self.signin.start()

    async def node(self, name: str = "n") -> str:
        """Register a node; return its name."""
        return await self._sandbox.node(name)

    async def replace_node(self, name: str) -> None:
        """Delete a Node, and register it again under the same name."""
        uid = (await self.kube.get(NODES, name)).metadata.uid
        await self.kube.delete(NODES, name, uid=uid)
        await self._sandbox.node(name.removeprefix(self._sandbox.prefix))

    async def replace_account(self, name: str) -> None:
        """Delete a ServiceAccount, and create it again under the same name."""
        where = self.namespace
        uid = (await self.kube.get(SERVICE_ACCOUNTS, name, namespace=where)).metadata.uid
        await self.kube.delete(SERVICE_ACCOUNTS, name, uid=uid, namespace=where)
        body = {"metadata": {"name": name}}
        await self.kube.create(SERVICE_ACCOUNTS, body, namespace=where)

    async def agent(self, node: str, writer: Writer = Writer.DRIVER) -> Pod:
        return await self.signin.pod(writer, node, exists=True)

    async def service(self, writer: Writer) -> Pod:
        return await self.signin.pod(writer, exists=True)

    async def allow_people(self) -> None:
        """Bind the person to the Role for people."""
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "people", "namespace": self.namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": PEOPLE_ROLE},
            "subjects": [{"kind": "User", "name": NOBODY, "apiGroup": RBAC}],
        }
        await apply(self._admin, binding)

    async def request_as_person(self, account: str) -> str:
        """Request a token of an account, as `kubectl create token` does."""
        return await request_token(self.person, self.namespace, account)

    async def tenant_pod(self, account: str, node: str) -> Pod:
        """Create a pod in another namespace; its token has our audience, as it may ask for."""
        namespace = f"{self.namespace}-tenant"
        await self.kube.create(NAMESPACES, {"metadata": {"name": namespace}})
        body = {"metadata": {"name": account}}
        await self.kube.create(SERVICE_ACCOUNTS, body, namespace=namespace)
        spec = {
            "serviceAccountName": account,
            "nodeName": node,
            "containers": [{"name": "c", "image": "i"}],
        }
        made = await self.kube.create(
            PODS, {"metadata": {"name": "tenant"}, "spec": spec}, namespace=namespace
        )
        ref = {"kind": "Pod", "apiVersion": "v1", "name": "tenant", "uid": made.metadata.uid}
        pod = Pod(
            identity=Identity(writer=Writer.DRIVER, node=node),
            name="tenant",
            uid=made.metadata.uid,
            token_file=self.signin.folder / "tenant.token",
        )
        pod.token_file.write_text(await request_token(self.kube, namespace, account, ref=ref))
        return pod

    async def raw(self, pod: Pod) -> RawClient:
        """Connect without our client's checks."""
        token = pod.token_file.read_text()
        return await RawClient.connect(self.signin.nats.url, pod.identity, token=token)

    async def is_refused(self, pod: Pod, child: ChildProcess, *causes: str) -> None:
        """Fail unless the pod is refused, and the service logs one of the causes.

        A slow answer is a refusal for nats-server, too: the service's own may come later.
        """
        with pytest.raises(BusUnavailable, match="refused the token"):
            async with self.signin.connect(pod, wait=2.0):
                pass
        await child.wait_for_log(*(f"cause={cause}" for cause in causes), within=180)


async def request_token(
    kube: Kube,
    namespace: str,
    account: str,
    *,
    ref: dict[str, str] | None = None,
    audiences: tuple[str, ...] = ("sluice",),
) -> str:
    """Request a token, by default for the bus."""
    spec = {"audiences": audiences, "boundObjectRef": ref}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = await kube.request("POST", path, body=body)
    return msgspec.json.decode(answer)["status"]["token"]


@asynccontextmanager
async def real_world(plane: RealKube, folder: Path) -> AsyncGenerator[RealWorld]:
    """Install Sluice into a namespace of its own, and start a nats-server."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real(plane))
        assert isinstance(server, RealServer)
        sandbox = Sandbox(server, token=secrets.token_hex(4))
        stack.push_async_callback(sandbox.close)
        admin = server.wire(ADMIN)
        for obj in installation_objects(sandbox.namespace):
            await apply(admin, obj)
        kube = sandbox.kube(manager="kubectl")
        account = service_account_of(Writer.SIGN_IN)
        token = await request_token(kube, sandbox.namespace, account, audiences=())
        config = json.loads(plane.kubeconfig().read_text())
        config["users"][0]["user"] = {"token": token}
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        own = await stack.enter_async_context(
            HttpTransport(plane.url, credentials=StaticToken(token, tls=server.tls))
        )
        world = World(stack, folder, kube, namespace=sandbox.namespace, kubeconfig=kubeconfig)
        await stack.enter_async_context(world.nats)
        yield RealWorld(world, plane=plane, sandbox=sandbox, admin=admin, own=own)


async def until_allowed(world: RealWorld, account: str) -> str:
    """Request a token as the person, until RBAC knows of the binding."""
    token = ""

    async def is_allowed() -> bool:
        nonlocal token
        try:
            token = await world.request_as_person(account)
        except Forbidden:
            return False
        return True

    await eventually(is_allowed, within=180, every=0.1)
    return token
