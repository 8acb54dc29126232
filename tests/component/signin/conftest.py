"""Fixtures: a world of sign-in on a simulated API server, or on a real one with RBAC."""

import json
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from libs.contracts.identities import Writer
from libs.kube.client import Kube
from libs.kube.resources import NAMESPACES
from libs.policy.crds import CEL_RULES
from libs.policy.installation import service_account_of
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.realkube.cluster import RealKube
from tests.component.installation import Installation
from tests.component.kube.sandbox import ADMIN, Sandbox
from tests.component.kube.servers import real
from tests.component.signin.world import World

NAMESPACE = "gpu-operator"


@pytest.fixture
def apiserver() -> ApiServer:
    ids = SeededIds(random.Random(2))
    return ApiServer(clock=SystemClock(), ids=ids, random=random.Random(1), rules=CEL_RULES)


@pytest.fixture
async def world(apiserver: ApiServer, tmp_path: Path) -> AsyncIterator[World]:
    kube = Kube(apiserver.transport(user="person"), manager="kubectl", clock=SystemClock())
    await kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(serve_http(apiserver))
        stack.push_async_callback(apiserver.stop)
        kubeconfig = http.kubeconfig(tmp_path, "sign-in")
        world = World(stack, tmp_path, kube, namespace=NAMESPACE, kubeconfig=kubeconfig)
        await stack.enter_async_context(world.nats)
        yield world


@pytest.fixture
async def real_world(plane: RealKube, tmp_path: Path) -> AsyncIterator[World]:
    """A world on the real API server, where sign-in has the rights of an installation."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real(plane))
        sandbox = Sandbox(server, token=secrets.token_hex(4))
        stack.push_async_callback(sandbox.close)
        await Installation(server, sandbox, Writer.SIGN_IN).install(lease="unused")
        kube = Kube(server.wire(ADMIN), manager="kubectl", clock=SystemClock())
        kubeconfig = tmp_path / "kubeconfig"
        world = World(stack, tmp_path, kube, namespace=sandbox.namespace, kubeconfig=kubeconfig)
        token = await world.token(service_account_of(Writer.SIGN_IN), audiences=[])
        kubeconfig.write_text(_kubeconfig(plane, token))
        await stack.enter_async_context(world.nats)
        yield world


def _kubeconfig(plane: RealKube, token: str) -> str:
    cluster = {"server": plane.url, "certificate-authority": str(plane.ca_file)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "sign-in", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "sign-in"}}],
        "current-context": "real",
    }
    return json.dumps(content)
