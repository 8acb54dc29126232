"""Fixture: a world of sign-in on a simulated API server."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from libs.kube.client import Kube
from libs.kube.resources import NAMESPACES
from libs.policy.crds import CEL_RULES
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
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
