"""A service process on a real NATS server: start, stop and failures."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from libs.bus.nats.bus import NatsBus, connect
from libs.contracts.identities import Identity, Writer
from libs.contracts.queries import WhyAnswer, WhyQuery
from libs.contracts.subjects import STATE
from libs.runtime.clock import SystemClock
from libs.testing.bus.queries import send_query
from libs.testing.child_process import bytecode_environ
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from tests.support import eventually


class ServiceProcess:
    """The example as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output: list[str] = []
        self._reading = asyncio.create_task(self._read(), name="read the example")

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.output.append(line.decode().rstrip())

    def has_logged(self, text: str) -> int:
        return sum(text in line for line in self.output)

    async def end(self) -> int:
        async with asyncio.timeout(30):
            await self._reading
            return await self.process.wait()


Launch = Callable[..., Awaitable[ServiceProcess]]


@pytest.fixture
async def launch() -> AsyncIterator[Launch]:
    programs: list[ServiceProcess] = []

    async def start(**environ: str) -> ServiceProcess:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-m", "tests.system.example", "example"),
            cwd=Path(__file__).parents[2],
            env={
                "SLUICE_METRICS_HOST": "127.0.0.1",
                "SLUICE_METRICS_PORT": "0",
                "SLUICE_PROBES_HOST": "127.0.0.1",
                "SLUICE_PROBES_PORT": "0",
                "SLUICE_LOG_FORMAT": "text",
                **bytecode_environ(),
                **environ,
            },
            stderr=asyncio.subprocess.PIPE,
        )
        programs.append(ServiceProcess(process))
        return programs[-1]

    yield start
    for program in programs:
        if program.process.returncode is None:
            program.process.kill()
        await program.end()


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    async with NatsServer() as running:
        yield running


@pytest.fixture
async def connected() -> AsyncIterator[Callable[[str], Awaitable[NatsBus]]]:
    async with AsyncExitStack() as stack:

        async def make(url: str) -> NatsBus:
            return await stack.enter_async_context(
                connect(
                    url=url,
                    identity=Identity(writer=Writer.CTL),
                    env=make_env(),
                )
            )

        yield make


async def ready(program: ServiceProcess) -> None:
    await eventually(lambda: program.has_logged("phase=ready") > 0)


async def test_queries_in_flight_at_sigterm_are_answered(
    server: NatsServer, launch: Launch, connected: Callable[[str], Awaitable[NatsBus]]
) -> None:
    program = await launch(SLUICE_NATS_URL=server.url)
    await ready(program)
    bus = await connected(server.url)
    queries = [
        asyncio.create_task(
            send_query(
                WhyQuery(node=node),
                bus=bus,
                clock=SystemClock(),
                cluster="default",
                service="scheduler",
                timeout=30.0,
            )
        )
        for node in ("a", "b", "c")
    ]
    await eventually(lambda: program.has_logged("query received") == 3)
    program.process.send_signal(signal.SIGTERM)
    assert await asyncio.gather(*queries) == [
        WhyAnswer(node=node, in_place=True) for node in ("a", "b", "c")
    ]
    assert await program.end() == 0


async def test_a_lost_server_does_not_delay_the_stop(server: NatsServer, launch: Launch) -> None:
    program = await launch(SLUICE_NATS_URL=server.url, SLUICE_DRAIN="600s")
    await ready(program)
    await server.kill()
    await eventually(lambda: program.has_logged("is unreachable") > 0)
    program.process.send_signal(signal.SIGTERM)
    assert await program.end() == 0
    assert not program.has_logged("Traceback")


async def test_a_crashed_worker_exits_1_with_one_line(server: NatsServer, launch: Launch) -> None:
    program = await launch(SLUICE_NATS_URL=server.url, SLUICE_CRASH="true")
    assert await program.end() == 1
    assert program.has_logged("the worker met something odd") == 1
    assert not program.has_logged("Traceback")


async def test_a_missing_server_is_waited_for_and_logged(
    server: NatsServer, launch: Launch
) -> None:
    await server.stop()
    program = await launch(SLUICE_NATS_URL=server.url)
    await eventually(lambda: program.has_logged("waiting for NATS") > 0)
    assert not program.has_logged("phase=ready")
    assert program.process.returncode is None
    await server.start()
    await ready(program)
    program.process.send_signal(signal.SIGTERM)
    assert await program.end() == 0
    assert program.has_logged("waiting for NATS") == 1


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        pytest.param(
            {"SLUICE_NATS_TOKEN_FILE": "/nowhere/token"},
            "cannot read the token file /nowhere/token",
            id="no-token",
        ),
        pytest.param({"SLUICE_NATS_NODE": "a"}, "it belongs to no node", id="a-node-too-many"),
    ],
)
async def test_wrong_bus_settings_exit_1_with_one_line(
    launch: Launch, environ: dict[str, str], line: str
) -> None:
    program = await launch(**environ)
    assert await program.end() == 1
    assert program.has_logged(line) == 1
    assert not program.has_logged("Traceback")


async def test_an_overlapping_stream_exits_1_with_one_line(
    server: NatsServer, launch: Launch, connected: Callable[[str], Awaitable[NatsBus]]
) -> None:
    await (await connected(server.url)).ensure(STATE)
    program = await launch(SLUICE_NATS_URL=server.url, SLUICE_STREAM="OTHER")
    assert await program.end() == 1
    assert program.has_logged("stream OTHER cannot be created") == 1
    assert not program.has_logged("Traceback")


async def test_wrong_settings_exit_2_with_a_line_each(launch: Launch) -> None:
    program = await launch(SLUICE_DRAIN="soon", SLUICE_METRICS_PORT="many", SLUICE_NATS_URI="x")
    assert await program.end() == 2
    assert len(program.output) == 3
    assert program.has_logged("did you mean SLUICE_NATS_URL?") == 1


async def test_a_setting_that_is_gone_exits_2_and_says_what_to_do(launch: Launch) -> None:
    program = await launch(SLUICE_NATS_NKEY_SEED_FILE="/old/seed")
    assert await program.end() == 2
    (line,) = program.output
    assert line.startswith("SLUICE_NATS_NKEY_SEED_FILE (environment) is gone: ")
    assert "give SLUICE_NATS_TOKEN_FILE" in line
