"""A real nats-server that asks real processes of sign-in, on a simulated or a real API server."""

import asyncio
import json
import re
import sys
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.contracts.identities import Identity, Writer
from libs.kube.client import Kube
from libs.kube.resources import NODES, PODS, SERVICE_ACCOUNTS
from libs.testing.child_process import ChildProcess, bytecode_environ
from libs.testing.nats import NatsServer
from libs.testing.sign_in import SignInKeys
from libs.testing.simulation import make_env
from tests.support import eventually

STARTED = "phase=ready"
ENVIRON = {
    "SLUICE_METRICS_HOST": "127.0.0.1",
    "SLUICE_METRICS_PORT": "0",
    "SLUICE_PROBES_HOST": "127.0.0.1",
    "SLUICE_PROBES_PORT": "0",
    "SLUICE_LOG_FORMAT": "text",
    "SLUICE_DRAIN": "3s",
    **bytecode_environ(),
}


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with its token in a file, as in its container."""

    identity: Identity
    name: str
    uid: str
    token_file: Path


class World:
    def __init__(
        self, stack: AsyncExitStack, folder: Path, kube: Kube, *, namespace: str, kubeconfig: Path
    ) -> None:
        self.folder = folder
        self.kube = kube
        self.namespace = namespace
        self.keys = SignInKeys(folder)
        self.nats = NatsServer(config=self.config())
        self._stack = stack
        self.kubeconfig = kubeconfig
        self._started = 0

    def config(self, seeds: tuple[str, str] | None = None, *, timeout: int = 10) -> str:
        """Return nats-server's configuration; without `seeds`, for the first pair of keys."""
        return self.keys.config(identities=10, seeds=seeds, timeout=timeout)

    def write_seeds(self, *pairs: tuple[str, str]) -> None:
        """Write the seed files of the present pair, and of the next if there are two."""
        for prefix, (signing, xkey) in zip(("", "next_"), pairs, strict=False):
            (self.folder / f"{prefix}signing").write_text(signing)
            (self.folder / f"{prefix}xkey").write_text(xkey)

    # The cluster.

    async def pod(self, writer: Writer, node: str = "", *, exists: bool = False) -> Pod:
        """Create a pod of a writer with its account and its node, and its token."""
        account = f"sluice-{writer}"
        if not exists:
            await self.kube.create(
                SERVICE_ACCOUNTS, {"metadata": {"name": account}}, namespace=self.namespace
            )
        if node and not exists:
            await self.kube.create(NODES, {"metadata": {"name": node}})
        self._started += 1
        name = f"{writer}-{self._started}"
        spec = {
            "serviceAccountName": account,
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "c", "image": "i"}],
        }
        made = await self.kube.create(
            PODS, {"metadata": {"name": name}, "spec": spec}, namespace=self.namespace
        )
        pod = Pod(
            identity=Identity(writer=writer, node=node),
            name=name,
            uid=made.metadata.uid,
            token_file=self.folder / f"{name}.token",
        )
        await self.renew(pod)
        return pod

    async def renew(self, pod: Pod) -> None:
        """Request a new token of the pod, as the kubelet does."""
        ref = {"kind": "Pod", "apiVersion": "v1", "name": pod.name, "uid": pod.uid}
        token = await self.token(f"sluice-{pod.identity.writer}", boundObjectRef=ref)
        pod.token_file.write_text(token)

    async def token(self, account: str, **spec: Any) -> str:
        """Request a token of an account."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": ["sluice"], "expirationSeconds": 3600, **spec},
        }
        answer = await self.kube.request("POST", path, body=body)
        return json.loads(answer)["status"]["token"]

    async def delete(self, pod: Pod) -> None:
        await self.kube.delete(PODS, pod.name, uid=pod.uid, namespace=self.namespace, grace=0)

    # Processes.

    async def start(
        self, *, module: str = "services.signin", until: str = STARTED, **settings: str
    ) -> ChildProcess:
        """Start a process of sign-in, and wait until it answers, or until it logs something."""
        own = {
            "nats_url": self.nats.url,
            "kubeconfig": str(self.kubeconfig),
            "namespace": self.namespace,
        }
        chosen = {**own, **self.keys.files, **settings}
        environ = {**ENVIRON, **{f"SLUICE_{name.upper()}": text for name, text in chosen.items()}}
        child = await ChildProcess.start(
            "sign-in", *(sys.executable, "-W", "error", "-m", module, "server"), environ=environ
        )
        self._stack.push_async_callback(child.destroy)
        await child.wait_for_log(until, within=60.0)
        return child

    # Clients.

    @asynccontextmanager
    async def connect(self, pod: Pod, *, wait: float = 20.0) -> AsyncGenerator[NatsBus]:
        """Connect as the pod does."""
        async with connect(
            url=self.nats.url,
            identity=pod.identity,
            env=make_env(),
            credentials=Credentials(token_file=str(pod.token_file)),
            wait=wait,
        ) as bus:
            yield bus


async def metrics(child: ChildProcess) -> Mapping[str, float]:
    """Return the metrics of sign-in, by name and labels."""
    (port,) = re.findall(r"metrics server started.* port=([0-9]+)", child.log)
    text = await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics")
    return {
        name.removeprefix("sluice_signin_"): float(value)
        for name, value in re.findall(r"^(sluice_signin_\S+) (\S+)$", text, re.MULTILINE)
    }


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


async def cut(bus: NatsBus) -> None:
    """Wait until the connection is broken."""
    await eventually(lambda: not bus.link.is_up, within=60.0)
