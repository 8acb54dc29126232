"""A NATS that is not the chart's: an administrator gives it what docs/install.md says, by hand."""

import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import connect
from libs.contracts import subjects
from libs.contracts.identities import Writer
from libs.contracts.subjects import STATE
from libs.testing.certificates import CertificateAuthority
from libs.testing.child_process import ChildProcess
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from services.signin.setup.contents import FOLDER, KEYS, SERVER
from tests.component.signin.conftest import NAMESPACE
from tests.component.signin.test_setup import run as run_setup
from tests.component.signin.world import ENVIRON, STARTED, World


class Existing(NamedTuple):
    """The server, and what clients need to know."""

    server: NatsServer
    ca_file: str

    @property
    def url(self) -> str:
        return self.server.url.replace("nats://", "tls://")


async def secret(world: World, name: str) -> dict[str, str]:
    """Return the files of a Secret, as `kubectl get secret` and base64 show them."""
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
    data = json.loads(await world.kube.request("GET", path))["data"]
    return {file: base64.b64decode(text).decode() for file, text in data.items()}


def with_own_certificate(config: str, paths: dict[str, Path]) -> str:
    """Put the paths of another certificate into the configuration, and change nothing else."""
    for name, path in paths.items():
        theirs = json.dumps(f"{FOLDER}/{name}")
        assert config.count(theirs) == 1, name
        config = config.replace(theirs, json.dumps(str(path)))
    assert FOLDER not in config
    return config


@pytest.fixture
async def existing(world: World, tmp_path: Path) -> AsyncIterator[Existing]:
    """Run the setup, and a server with its configuration and a certificate of another CA."""
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SLUICE_KUBECONFIG": str(world.kubeconfig),
        "SLUICE_NAMESPACE": NAMESPACE,
    }
    assert await run_setup(environ) == 0
    authority = CertificateAuthority("CA of the administrator")
    ca_file = authority.write(tmp_path / "ca-of-nats.pem")
    pair = authority.issue(tmp_path, "existing-nats")
    paths = {"tls.crt": pair.cert_file, "tls.key": pair.key_file, "ca.crt": ca_file}
    text = with_own_certificate((await secret(world, SERVER))["nats.conf"], paths)
    async with NatsServer(config=text) as server:
        yield Existing(server, str(ca_file))


async def start_sign_in(world: World, existing: Existing) -> None:
    """Start the program with the seeds that the setup has made."""
    seeds = await secret(world, KEYS)
    world.write_seeds((seeds["signing.seed"], seeds["xkey.seed"]))
    (world.folder / "nkey").write_text(seeds["nkey.seed"])
    await world.start(nats_url=existing.url, nats_ca_file=existing.ca_file)


async def start_scheduler(world: World, existing: Existing, stack: AsyncExitStack) -> None:
    pod = await world.pod(Writer.SCHEDULER)
    environ = {
        **ENVIRON,
        "SLUICE_NATS_URL": existing.url,
        "SLUICE_NATS_CA_FILE": existing.ca_file,
        "SLUICE_NATS_TOKEN_FILE": str(pod.token_file),
        "SLUICE_KUBECONFIG": str(world.kubeconfig),
        "SLUICE_NAMESPACE": NAMESPACE,
    }
    command = (sys.executable, "-W", "error", "-m", "services.scheduler", "scheduler")
    child = await ChildProcess.start("scheduler", *command, environ=environ)
    stack.push_async_callback(child.destroy)
    await child.wait_for_log(STARTED, within=60.0)


@pytest.mark.dear("the setup, NATS and sign-in, each a process that is started anew")
async def test_services_and_agents_sign_in_at_an_existing_nats(
    world: World, existing: Existing
) -> None:
    """The scheduler makes the streams there, and an agent's report is stored."""
    async with AsyncExitStack() as stack:
        await start_sign_in(world, existing)
        await start_scheduler(world, existing, stack)
        agent = await world.pod(Writer.DRIVER, "gpu-1")
        bus = await stack.enter_async_context(
            connect(
                url=existing.url,
                identity=agent.identity,
                env=make_env(),
                credentials=Credentials(token_file=str(agent.token_file), ca_file=existing.ca_file),
                wait=20.0,
            )
        )
        scope = {"cluster": "default", "node": "gpu-1", "component": "driver"}
        report = str(subjects.State(**scope, kind="progress"))
        assert await bus.store(STATE, report, b"a report") > 0
