"""The way through the API server by the rights that a real one grants.

It has no kubelets, so that the way ends where a pod's port would be forwarded.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from libs.contracts.nats_names import CA_CONFIG_MAP, CA_FILE, PODS
from libs.ctl.failures import ExitCode
from libs.kube import resources
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import CONFIG_MAPS
from libs.policy.crds import crd_manifests
from libs.policy.installation import PEOPLE_ROLE, installation_objects
from libs.testing.realkube.cluster import RealKube
from tests.component.ctl.world import NO_ADDRESSES, Ended, run_command
from tests.component.kube.sandbox import ADMIN, NOBODY, Sandbox
from tests.component.kube.servers import RealServer, real
from tests.component.policy.strict_writes import apply
from tests.support import eventually

RBAC = "rbac.authorization.k8s.io"


class Installed:
    """An installation on a real API server, and kubeconfigs whose context is its namespace."""

    def __init__(self, server: RealServer, sandbox: Sandbox, folder: Path) -> None:
        self.namespace = sandbox.namespace
        self._server = server
        self._sandbox = sandbox
        self._folder = folder

    async def install(self) -> None:
        admin, kube = self._server.wire(ADMIN), self._sandbox.kube(manager="kubectl")
        for obj in (*crd_manifests().values(), *installation_objects(self.namespace)):
            await apply(admin, obj)
        ca = {"metadata": {"name": CA_CONFIG_MAP}, "data": {CA_FILE: "no certificate"}}
        await kube.create(CONFIG_MAPS, ca, namespace=self.namespace)
        spec = {
            "nodeName": await self._sandbox.node("n"),
            "containers": [{"name": "nats", "image": "nats"}],
        }
        wanted = {"metadata": {"name": PODS[0]}, "spec": spec}
        await kube.create(resources.PODS, wanted, namespace=self.namespace)
        conditions = [{"type": "Ready", "status": "True"}]
        await kube.request(
            "PATCH",
            resources.PODS.path(namespace=self.namespace, name=PODS[0], subresource="status"),
            body={"status": {"phase": "Running", "conditions": conditions}},
            content_type=MERGE_PATCH,
        )

    async def bind(self) -> None:
        """Bind the person to the Role for people."""
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "people", "namespace": self.namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": PEOPLE_ROLE},
            "subjects": [{"kind": "User", "name": NOBODY, "apiGroup": RBAC}],
        }
        await apply(self._server.wire(ADMIN), binding)

    def run(self, user: str, *arguments: str) -> Ended:
        config = json.loads(self._server.plane.kubeconfig(user).read_text())
        config["contexts"][0]["context"]["namespace"] = self.namespace
        file = self._folder / user
        file.write_text(json.dumps(config))
        environ = {**NO_ADDRESSES, "KUBECONFIG": str(file), "COLUMNS": "400"}
        return run_command(*arguments, **environ)


@pytest.fixture
async def installed(plane: RealKube, tmp_path: Path) -> AsyncIterator[Installed]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real(plane))
        assert isinstance(server, RealServer)
        sandbox = Sandbox(server, token=secrets.token_hex(4))
        await sandbox.open()
        stack.push_async_callback(sandbox.close)
        made = Installed(server, sandbox, tmp_path)
        await made.install()
        yield made


async def test_the_role_grants_the_whole_way_and_an_administrator_has_it(
    installed: Installed,
) -> None:
    where = installed.namespace
    lost = await asyncio.to_thread(installed.run, NOBODY, "events")
    assert lost.code == ExitCode.NOT_ALLOWED
    assert f"may read no ConfigMap sluice-nats-ca in {where} or gpu-operator or sluice" in lost.err
    refused = await asyncio.to_thread(installed.run, NOBODY, "events", "--namespace", where)
    assert refused.code == ExitCode.NOT_ALLOWED
    assert (
        f"you may not request a token for sluice-ctl, nor reach NATS's pods by a port-forward, nor"
        f" read the ConfigMap sluice-nats-ca in namespace {where}; an administrator binds you to"
        f" the Role sluice-people there: `kubectl -n {where} create rolebinding"
        f" sluice-people-nobody --role=sluice-people --user=nobody`"
    ) in refused.err
    await installed.bind()
    ended = refused

    async def is_bound() -> bool:
        nonlocal ended
        ended = await asyncio.to_thread(installed.run, NOBODY, "events")
        return ended.code != ExitCode.NOT_ALLOWED

    await eventually(is_bound, within=60, every=0.2)
    by_name = await asyncio.to_thread(installed.run, ADMIN, "events", "--namespace", where)
    for each in (ended, by_name):
        assert each.code == ExitCode.NOT_REACHABLE
        assert f"/pods/{PODS[0]}/portforward: " in each.err
    said = await asyncio.to_thread(installed.run, NOBODY, "doctor", "-o", "json")
    rights = next(each for each in json.loads(said.out) if each["about"] == "your rights")
    assert "patch nodes" in rights["found"]
    for granted in ("serviceaccounts/token", "portforward", "configmaps", "get pods"):
        assert granted not in rights["found"]
