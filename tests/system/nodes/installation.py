"""Sluice installed on real nodes: objects, NATS with sign-in, and the services that agents need.

NATS and services are processes beside the nodes; agents reach NATS at the nodes' gateway, by TLS.
"""

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import connect
from libs.bus.port import Bus
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STREAMS
from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects, service_account_of
from libs.policy.render.rendered import AgentImages
from libs.testing.certificates import LOOPBACK, CertificateAuthority
from libs.testing.child_process import HOST, ChildProcess, bytecode_environ
from libs.testing.image.build import IMAGE
from libs.testing.nats import NatsServer
from libs.testing.realnodes import config, gpus
from libs.testing.realnodes.ground import Ground
from libs.testing.sign_in import SignInKeys
from libs.testing.simulation import make_env
from tests.system.nodes.kubectl import Kubectl

NAMESPACE: Final = "gpu-operator"
POLICY: Final = "cluster-policy"

_NATS_PORT: Final = 4222
_CA: Final = "sluice-nats-ca"
_SECTIONS: Final = (
    "operator daemonsets toolkit devicePlugin dcgm dcgmExporter nodeStatusExporter gfd"
)
_ENVIRON: Final = {
    "SLUICE_METRICS_HOST": HOST,
    "SLUICE_METRICS_PORT": "0",
    "SLUICE_PROBES_HOST": HOST,
    "SLUICE_PROBES_PORT": "0",
    "SLUICE_LOG_FORMAT": "text",
    "SLUICE_DRAIN": "3s",
    **bytecode_environ(),
}


class Installation:
    """What an administrator installs; a policy makes the agents run."""

    def __init__(
        self,
        stack: AsyncExitStack,
        ground: Ground,
        kubectl: Kubectl,
        folder: Path,
        *,
        image: str = IMAGE,
    ) -> None:
        self.kubectl = kubectl
        self._stack = stack
        self._ground = ground
        self._folder = folder
        self._keys = SignInKeys(folder)
        self._image = image
        self.nats = NatsServer()
        self._url = ""
        self.services: dict[Writer, ChildProcess] = {}

    async def install(self) -> None:
        """Install everything but the policy, and start NATS and the services."""
        authority = CertificateAuthority()
        authority.write(self._folder / "ca.crt")
        self._stack.push_async_callback(self._remove_objects)
        await self._create_objects(authority)
        await self._start_nats(authority)
        sign_in = await self._start(Writer.SIGN_IN, "services.signin", "server", **self._keys.files)
        await sign_in.wait_for_log("phase=ready", within=180)
        await self._create_streams()
        await self._start(
            *(Writer.DRIVER_CLUSTER, "services.driver", "cluster"),
            **{f"images_{agent}": self._image for agent in AgentImages.__struct_fields__},
            agent_env=f"SLUICE_NATS_URL=tls://{config.GATEWAY}:{_NATS_PORT},{gpus.ENVIRONMENT}",
            agent_bus_ca=_CA,
        )
        await self._start(Writer.DISCOVERY_CLUSTER, "services.discovery", "cluster")

    async def apply_policy(self, **sections: Any) -> None:
        """Create or change the ClusterPolicy."""
        spec = {**{name: {} for name in _SECTIONS.split()}, "driver": {"enabled": False}}
        await self.kubectl.apply(
            {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": POLICY},
                "spec": {**spec, **sections},
            }
        )

    async def _create_objects(self, authority: CertificateAuthority) -> None:
        definitions = crd_manifests().values()
        await self.kubectl.apply(*definitions)
        names = [f"crd/{each['metadata']['name']}" for each in definitions]
        await self.kubectl.wait("condition=Established", *names)
        ca = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _CA, "namespace": NAMESPACE},
            "data": {"ca.crt": authority.pem.decode()},
        }
        await self.kubectl.apply(*installation_objects(NAMESPACE), ca)

    async def _remove_objects(self) -> None:
        await self.kubectl.run("delete", "clusterpolicy", POLICY, "--ignore-not-found")
        await self.kubectl.run("delete", "namespace", NAMESPACE, "--timeout=180s")

    async def _start_nats(self, authority: CertificateAuthority) -> None:
        """Start NATS on the loopback; nodes and pods reach it at their gateway."""
        names = (*LOOPBACK, config.GATEWAY)
        pair = authority.issue(self._folder, "nats", names=names)
        self.nats = NatsServer(config=self._keys.config(identities=10), tls=pair)
        await self._stack.enter_async_context(self.nats)
        await self._ground.publish(self.nats.port, _NATS_PORT)
        self._stack.push_async_callback(self._ground.unpublish, _NATS_PORT)
        self._url = self.nats.url

    @asynccontextmanager
    async def bus(self, writer: Writer) -> AsyncGenerator[Bus]:
        """Connect to NATS."""
        token = await self._token(writer)
        credentials = Credentials(token_file=str(token), ca_file=str(self._folder / "ca.crt"))
        identity = Identity(writer=writer)
        async with connect(
            url=self._url, identity=identity, env=make_env(), credentials=credentials, wait=20.0
        ) as bus:
            yield bus

    async def _create_streams(self) -> None:
        """Create the streams, as the scheduler does."""
        async with self.bus(Writer.SCHEDULER) as bus:
            for stream in STREAMS:
                await bus.ensure(stream)

    async def _start(self, writer: Writer, module: str, role: str, **settings: str) -> ChildProcess:
        """Start a service with the rights of its account, also on the bus."""
        common = {
            "kubeconfig": str(await self._kubeconfig(writer)),
            "namespace": NAMESPACE,
            "nats_url": self._url,
            "nats_ca_file": str(self._folder / "ca.crt"),
        }
        if writer is not Writer.SIGN_IN:
            common["nats_token_file"] = str(await self._token(writer))
        environ = {f"SLUICE_{name.upper()}": text for name, text in {**common, **settings}.items()}
        child = await ChildProcess.start(
            f"{module} {role}",
            *(sys.executable, "-W", "error", "-m", module, role),
            environ={**_ENVIRON, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
        )
        self._stack.push_async_callback(child.destroy)
        self.services[writer] = child
        return child

    async def _token(self, writer: Writer) -> Path:
        """Request a token for the bus; that of a service is bound to a pod that bears its name.

        The process runs beside the cluster: the pod gets no node, and never starts.
        """
        account, bound = service_account_of(writer), ()
        if writer is not Writer.CTL:
            spec = {
                "serviceAccountName": account,
                "schedulerName": "none",
                "containers": [{"name": "beside-the-cluster", "image": self._image}],
            }
            metadata = {"name": account, "namespace": NAMESPACE}
            await self.kubectl.apply(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )
            bound = ("--bound-object-kind=Pod", f"--bound-object-name={account}")
        words = ("create", "token", account, "--namespace", NAMESPACE, "--audience=sluice")
        token = await self.kubectl.output(*words, "--duration=24h", *bound)
        file = self._folder / f"{writer}.token"
        file.write_text(token.strip())
        return file

    async def _kubeconfig(self, writer: Writer) -> Path:
        account = service_account_of(writer)
        token = await self.kubectl.run("create", "token", account, "--namespace", NAMESPACE)
        settings = json.loads(self._ground.kube.kubeconfig().read_text())
        settings["users"][0]["user"] = {"token": token.strip()}
        file = self._folder / f"{writer}.kubeconfig"
        file.write_text(json.dumps(settings))
        return file


@asynccontextmanager
async def installed(ground: Ground, kubectl: Kubectl, folder: Path) -> AsyncGenerator[Installation]:
    """Install Sluice on the ground; remove it at the end."""
    async with AsyncExitStack() as stack:
        installation = Installation(stack, ground, kubectl, folder)
        await installation.install()
        yield installation
