"""A process that is the simulated API server with the agents of a fleet.

`python -m bench.signin_cluster FOLDER NODES` writes a kubeconfig for sign-in, and a token per
agent, signed as a cluster of kubeadm signs them (RS256). It prints `{"kubeconfig", "tokens"}` and
ends with its stdin.
"""

import asyncio
import json
import random
import sys
from pathlib import Path

from libs.contracts.identities import COMPONENTS, Writer
from libs.kube.client import Kube
from libs.kube.resources import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from libs.policy.installation import service_account_of
from libs.runtime.clock import SystemClock
from libs.runtime.env import RandomIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.tokens import Bound

NAMESPACE = "gpu-operator"


class Fleet:
    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._kube = Kube(server.transport(user="bench"), manager="kubectl", clock=SystemClock())
        self._issuer = server.issuer
        self._folder = folder
        self.tokens: dict[str, str] = {}
        """The token files by node and writer."""

    async def create(self, nodes: int) -> None:
        await self._kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        accounts = {writer: await self._account(writer) for writer in COMPONENTS}
        for number in range(nodes):
            name = f"gpu-{number:05}.example"
            made = await self._kube.create(NODES, {"metadata": {"name": name}})
            for writer, account in accounts.items():
                await self._agent(writer, account, Bound(name, made.metadata.uid))

    async def _account(self, writer: Writer) -> Bound:
        name = service_account_of(writer)
        made = await self._kube.create(
            SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=NAMESPACE
        )
        return Bound(name, made.metadata.uid)

    async def _agent(self, writer: Writer, account: Bound, node: Bound) -> None:
        spec = {
            "serviceAccountName": account.name,
            "nodeName": node.name,
            "containers": [{"name": "agent", "image": "registry.example/agent:1"}],
        }
        body = {"metadata": {"name": f"{account.name}-{node.name}"}, "spec": spec}
        made = await self._kube.create(PODS, body, namespace=NAMESPACE)
        pod = Bound(made.metadata.name, made.metadata.uid)
        claims = self._issuer.claims(
            namespace=NAMESPACE, account=account, pod=pod, node=node, seconds=6 * 3600
        )
        file = self._folder / f"{writer}.{node.name}"
        file.write_text(self._issuer.sign(claims))
        self.tokens[f"{node.name}/{writer}"] = str(file)


async def main(folder: Path, nodes: int) -> None:
    """Fill the server, and serve it until stdin ends."""
    server = ApiServer(clock=SystemClock(), ids=RandomIds(), random=random.Random(1))
    server.issuer.rotate("RS256")
    fleet = Fleet(server, folder)
    await fleet.create(nodes)
    async with serve_http(server) as http:
        kubeconfig = http.kubeconfig(folder, "sign-in")
        print(json.dumps({"kubeconfig": str(kubeconfig), "tokens": fleet.tokens}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
