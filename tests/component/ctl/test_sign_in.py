"""A person with a kubeconfig alone: the token for NATS is requested, and sign-in admits it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from libs.ctl.failures import ExitCode
from libs.kube.client import Kube
from libs.kube.resources import NAMESPACES, SERVICE_ACCOUNTS
from libs.policy.crds import CEL_RULES
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from tests.component.ctl.world import NO_ADDRESSES, PERSON, Ended, run_command
from tests.component.signin import world as signin

NAMESPACE = "gpu-operator"


class World(signin.World):
    """Sign-in, and a kubeconfig of a person."""

    person: Path
    server: ApiServer

    async def ask(self) -> Ended:
        """Ask a scheduler that is away: only a person who is admitted learns that."""
        environ = {"KUBECONFIG": str(self.person), "SLUICE_NATS_URL": self.nats.url}
        return await asyncio.to_thread(
            run_command, "plan", "any", **{**NO_ADDRESSES, **environ, "COLUMNS": "200"}
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    ids = SeededIds(random.Random(2))
    server = ApiServer(clock=SystemClock(), ids=ids, random=random.Random(1), rules=CEL_RULES)
    kube = Kube(server.transport(user="admin"), manager="kubectl", clock=SystemClock())
    await kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(serve_http(server))
        stack.push_async_callback(server.stop)
        kubeconfig = http.kubeconfig(tmp_path, "sign-in")
        made = World(stack, tmp_path, kube, namespace=NAMESPACE, kubeconfig=kubeconfig)
        made.person = http.kubeconfig(tmp_path, PERSON)
        made.server = server
        await stack.enter_async_context(made.nats)
        yield made


async def test_a_token_is_requested_in_the_namespace_that_has_the_account(world: World) -> None:
    child = await world.start()
    account = {"metadata": {"name": "sluice-ctl"}}
    await world.kube.create(SERVICE_ACCOUNTS, account, namespace=world.namespace)
    ended = await world.ask()
    assert ended.code == ExitCode.NOT_REACHABLE
    assert "NATS is reachable, but no scheduler leads" in ended.err
    assert "signed in" in child.log


async def test_a_refused_token_is_not_called_by_a_file_that_is_gone(world: World) -> None:
    await world.start()
    await world.kube.create(NAMESPACES, {"metadata": {"name": "elsewhere"}})
    account = {"metadata": {"name": "sluice-ctl"}}
    await world.kube.create(SERVICE_ACCOUNTS, account, namespace="elsewhere")
    ended = await world.ask()
    assert (ended.code, ended.err.count("\n")) == (ExitCode.NOT_ALLOWED, 1)
    assert "refused the token that Kubernetes gave you for sluice-ctl (" in ended.err
    assert "/sluice-ctl-" not in ended.err


async def test_a_person_who_may_not_request_one_learns_what_to_do(world: World) -> None:
    await world.start()
    account = {"metadata": {"name": "sluice-ctl"}}
    await world.kube.create(SERVICE_ACCOUNTS, account, namespace=world.namespace)
    refused = Fault(effect=RefuseRequest(403), verbs=("create",), user=PERSON)
    world.server.faults.add(refused)
    ended = await world.ask()
    assert ended.code == ExitCode.NOT_ALLOWED
    assert "NATS wants a token, and you may not request a token for sluice-ctl" in ended.err
    assert f"in {NAMESPACE}: an administrator binds you to the Role sluice-people" in ended.err
