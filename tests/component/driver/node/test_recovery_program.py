"""Driver agents' programs are killed, their nodes boot again while NATS is stopped: who gets in?"""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from libs.bus.port import Bus
from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import Command, Idle, Order, Proven
from libs.contracts.identities import Writer
from libs.contracts.message import decode
from libs.contracts.reports import Report, Result
from libs.contracts.subjects import STATE
from libs.host import gate
from libs.host.gate import GateRequest
from libs.runtime.clock import SystemClock
from tests.builders.fake_machine import KERNEL, FakeMachine
from tests.builders.machine_files import put
from tests.component.programs import Programs, address_of, run_programs
from tests.support import eventually

if TYPE_CHECKING:
    from libs.testing.child_process import ChildProcess

POD, LATER = "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02", "0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03"
PROVEN = Idle(proven=Proven(label="d-1", kernel=KERNEL, install_digest="i-1"))
OTHER_KERNEL = "6.8.0-50-generic"
WITHIN = 120.0


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    async with run_programs(tmp_path) as programs:
        await programs.create_streams()
        yield programs


class Node:
    """A machine, its driver agent, and the scheduler's side of it."""

    def __init__(self, programs: Programs, name: str) -> None:
        self.name = name
        self.uid = f"uid-{name}"
        self.machine = FakeMachine(programs.folder / name)
        self.state_dir = programs.folder / f"{name}-state"
        self.agent: ChildProcess | None = None
        self._programs = programs
        self._boots = 1
        self._op = 0

    @property
    def proof(self) -> Path:
        return self.state_dir / "proven"

    async def start(self) -> None:
        self.agent = await self._programs.start_agent(
            "driver",
            host=self.machine.root,
            node=self.name,
            node_uid=self.uid,
            state_dir=str(self.state_dir),
            change_this_machine="true",
            no_runtime_config="true",
        )

    async def kill(self) -> None:
        if self.agent is not None:
            await self.agent.end(signal.SIGKILL, code=-signal.SIGKILL)
        self.agent = None

    async def write(self, bus: Bus, body: Idle) -> Order:
        self._op += 1
        clock = SystemClock()
        command = Command.of(
            body,
            node=self.name,
            node_uid=self.uid,
            boot_id="any",
            epoch=1,
            order=Order(1, self._op),
            deadline=clock.now() + 3600.0,
        )
        slot = subjects.Command(cluster="default", node=self.name, component="driver")
        await SlotWriter(bus=bus, clock=clock).write(slot, command)
        return command.order

    async def is_done(self, bus: Bus, order: Order) -> bool:
        subject = subjects.State(
            cluster="default", node=self.name, component="driver", kind="result"
        )
        found = await bus.last(STATE, str(subject))
        body = None if found is None else decode(Report, found.data).open()
        return isinstance(body, Result) and body.order == order

    async def until_done(self, bus: Bus, order: Order) -> None:
        async with asyncio.timeout(WITHIN):
            while not await self.is_done(bus, order):
                await asyncio.sleep(0.05)

    def reboot(self, *, kernel: str = KERNEL) -> None:
        """Clear what a boot clears."""
        self._boots += 1
        shutil.rmtree(self.machine.root / "run", ignore_errors=True)
        put(self.machine.root, "/proc/sys/kernel/random/boot_id", f"boot-{self._boots}")
        put(self.machine.root, "/proc/sys/kernel/osrelease", kernel)

    def ask(self, uid: str = POD, *, digest: str = "i-1") -> None:
        now = SystemClock().now()
        request = GateRequest(pod_uid=uid, label="d-1", install_digest=digest, started=now)
        gate.put_request(self.machine.tree, request)

    async def until_shut(self, reason: str) -> None:
        """Wait until the agent is not ready because of this."""
        assert self.agent is not None
        url = await address_of(self.agent, "probe server")
        text = ""
        try:
            async with asyncio.timeout(WITHIN), aiohttp.ClientSession() as http:
                while reason not in text:
                    async with http.get(f"{url}/readyz") as response:
                        text = await response.text()
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pytest.fail(f"{self.name}: {reason!r} is not in {text!r}")

    @property
    def admitted(self) -> list[str]:
        return [each.pod_uid for each in gate.list_answers(self.machine.tree)]


@pytest.mark.dear("five nodes, each with the program before its boot and after")
async def test_nodes_that_boot_while_nats_is_stopped(programs: Programs) -> None:
    """Five nodes: the same, another kernel, another digest, a moved disk, one that failed."""
    same, kernel, digest, moved, failed = nodes = [
        Node(programs, name) for name in ("same", "kernel", "digest", "moved", "failed")
    ]
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(programs.connect(Writer.SCHEDULER))

        async def prove(node: Node) -> None:
            await node.start()
            await node.until_done(bus, await node.write(bus, PROVEN))
            await node.kill()

        await asyncio.gather(*map(prove, nodes))
        # Its agent is silent: the failure stays in the slot.
        nothing_proven = await failed.write(bus, Idle())
    assert [node.proof.exists() for node in nodes] == [True] * 5
    await programs.nats.stop()

    for node in nodes:
        node.reboot(kernel=OTHER_KERNEL if node is kernel else KERNEL)
        node.ask(digest="i-2" if node is digest else "i-1")
    moved.uid = "uid-of-another-node"
    for node in nodes:
        await node.start()
        if node is same:  # a kill before the gate opens changes nothing
            await node.kill()
            await node.start()
    await eventually(lambda: same.admitted == failed.admitted == [POD], within=WITHIN)
    for node, reason in (
        (kernel, f"kernel {OTHER_KERNEL} runs, but the driver is validated with {KERNEL}"),
        (digest, "the waiting pod installs i-2, but i-1 is validated"),
        (moved, "nothing is on the disk that was proven on this machine"),
    ):
        await node.until_shut(reason)
    assert kernel.admitted == digest.admitted == moved.admitted == []

    await programs.nats.start()
    async with programs.connect(Writer.SCHEDULER) as bus:
        await failed.until_done(bus, nothing_proven)
    await eventually(lambda: not failed.proof.exists())
    failed.ask(LATER)
    same.ask(LATER)
    await eventually(lambda: LATER in same.admitted, within=WITHIN)
    assert failed.admitted == [POD]


@pytest.mark.parametrize("delay", [0.0, 0.05])
async def test_a_killed_agent_never_keeps_a_proof_that_it_acknowledged_as_void(
    programs: Programs, delay: float
) -> None:
    node = Node(programs, "a")
    async with programs.connect(Writer.SCHEDULER) as bus:
        await node.start()
        await node.until_done(bus, await node.write(bus, PROVEN))
        for body in (Idle(), PROVEN, Idle()):
            order = await node.write(bus, body)
            await asyncio.sleep(delay)
            await node.kill()
            if await node.is_done(bus, order):
                assert node.proof.exists() == (body is PROVEN)
            await node.start()
            await node.until_done(bus, order)
            assert node.proof.exists() == (body is PROVEN)
        await node.kill()
