"""Fixtures: kubectl for the simulated and the real server."""

import os
import random
import secrets
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from libs.kube.http import HttpTransport, StaticToken
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.realkube.binaries import find_binaries
from libs.testing.realkube.cluster import RealKube
from libs.testing.realkube.control_plane import ADMIN
from tests.component.kube.kubectl.kubectl_process import Kubectl

SEARCH = find_binaries(os.environ)


@dataclass(frozen=True, kw_only=True)
class ServerAccess:
    """A server, and the credentials of its administrator."""

    name: str
    url: str
    kubeconfig: Path
    credentials: StaticToken


@pytest.fixture
async def access(ground: RealKube | None, tmp_path: Path) -> AsyncIterator[ServerAccess]:
    """Return access to the server of this test."""
    if SEARCH.binaries is None:
        pytest.skip(f"no kubectl: {SEARCH.explanation}")
    if (plane := ground) is not None:
        tls = ssl.create_default_context(cafile=plane.ca_file)
        credentials = StaticToken(plane.token(ADMIN), tls=tls)
        yield ServerAccess(
            name="real", url=plane.url, kubeconfig=plane.kubeconfig(), credentials=credentials
        )
        return
    source = random.Random(7)
    server = ApiServer(clock=SystemClock(), ids=SeededIds(source), random=source)
    async with serve_http(server) as access:
        yield ServerAccess(
            name="simulated",
            url=access.url,
            kubeconfig=access.kubeconfig(tmp_path, ADMIN),
            credentials=StaticToken(server.token_of(ADMIN)),
        )


@pytest.fixture
async def kubectl(access: ServerAccess, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """Return a kubectl whose namespace accepts pods."""
    assert SEARCH.binaries is not None
    kubectl = Kubectl(
        SEARCH.binaries.kubectl,
        kubeconfig=access.kubeconfig,
        home=tmp_path,
        token=f"k{secrets.token_hex(3)}",
    )
    metadata = {"name": kubectl.namespace, "labels": kubectl.labels}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    await kubectl("create -f -", stdin=namespace)
    if access.name == "simulated":
        yield kubectl
        return
    # Its controllers come first, and it outlives the test.
    await kubectl("wait --for=create serviceaccount/default --timeout=120s")
    yield kubectl
    await kubectl(
        f"delete nodes,customresourcedefinitions,namespaces {kubectl.selector} --wait=false"
    )


@pytest.fixture
async def wire(access: ServerAccess) -> AsyncIterator[HttpTransport]:
    """Return a transport to the same server."""
    async with HttpTransport(access.url, credentials=access.credentials) as wire:
        yield wire
