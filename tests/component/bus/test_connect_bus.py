"""How a service connects: what its readiness says until it is connected, and what is fatal."""

import asyncio
from pathlib import Path

import pytest

from libs.bus.connect import NatsSettings, connect_bus
from libs.contracts.identities import Writer
from libs.runtime.clock import SystemClock
from libs.runtime.fatal import Fatal
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.service import Service
from libs.testing.certificates import CertificateAuthority
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from tests.support import eventually


def process() -> Process[ProcessSettings]:
    return Process(ProcessSettings(), env=make_env(), on_drain=lambda: None)


async def run(service: Service, settings: NatsSettings) -> None:
    async with service:
        await connect_bus(
            process=process(), service=service, settings=settings, writer=Writer.SCHEDULER
        )


async def test_the_readiness_tells_why_a_service_waits_for_its_first_connection(
    tmp_path: Path,
) -> None:
    authority = CertificateAuthority()
    ca_file = authority.write(tmp_path / "ca.pem")
    wrong = authority.issue(tmp_path, "server", names=("nats.sluice.svc",))
    async with NatsServer(tls=wrong) as server:
        service = Service("scheduler", clock=SystemClock())
        settings = NatsSettings(url=server.url, ca_file=str(ca_file))
        running = asyncio.create_task(run(service, settings))
        await eventually(
            lambda: any(
                "nats: the server's certificate is not for 127.0.0.1, but for nats.sluice.svc"
                in reason
                for reason in service.unready_reasons()
            )
        )
        authority.issue(tmp_path, "server")
        await server.reload("")
        await eventually(lambda: service.unready_reasons() == [])
        service.stop("the test ends")
        await running


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            NatsSettings(url="nats://nats.example", token_file="/token"),
            "a token must not be sent to nats.example in plain text",
            id="a token without TLS",
        ),
        pytest.param(
            NatsSettings(url="tls://user:secret@nats.example"),
            "contains a password",
            id="a password",
        ),
        pytest.param(
            NatsSettings(url="tls://nats.example", ca_file="/nowhere/ca.pem"),
            "cannot read the CA file /nowhere/ca.pem",
            id="no CA file",
        ),
        pytest.param(
            NatsSettings(cluster="*"), r"'\*' cannot be the name of a cluster", id="a wildcard"
        ),
    ],
)
async def test_unsafe_settings_are_fatal(settings: NatsSettings, words: str) -> None:
    service = Service("scheduler", clock=SystemClock())
    with pytest.raises(Fatal, match=words) as caught:
        await run(service, settings)
    assert "secret" not in str(caught.value)
