"""`sluice watch` as a program in a terminal, while the fleet that it shows changes."""

import asyncio
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Generator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.fleet import LineProcess
from bench.report import BenchReport
from libs.bus.nats.bus import NatsBus, connect
from libs.contracts import subjects
from libs.contracts.events import Event, WaitEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.node import RECORD_ANNOTATION, STATE_LABEL, NodeRecord
from libs.contracts.waits import WaitCode
from libs.kube.client import APPLY_PATCH, MERGE_PATCH, Kube
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.resources import NODES
from libs.policy.crds import crd_manifests
from libs.runtime.clock import SystemClock
from libs.testing.sign_in import TokenSignIn, signed_nats
from libs.testing.simulation import make_env

TITLE = "sluice watch of 2,000 nodes, of which 50 a second change their state and their wait"
NODES_SHOWN: Final = 2_000
RATE: Final = 50
SECONDS: Final = 30.0
SIZES: Final = ((80, 24), (160, 48))
POOL: Final = "clusterpolicy-cluster-policy"
STATES: Final = (
    "upgrade-required",
    "wait-for-jobs-required",
    "pod-restart-required",
    "validation-required",
    "upgrade-done",
)
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ROLLOUTS: Final = "/apis/sluice.dev/v1alpha1/rollouts"
_PROGRAM: Final = "import sys; from libs.ctl.command import main; sys.exit(main())"
_BARE: Final = "import sys; print(flush=True); sys.stdin.read()"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


async def run(report: BenchReport) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = await asyncio.to_thread(
            LineProcess, stack, "bench.fleet_server", str(NODES_SHOWN), "nvidia.com/gpu.present"
        )
        ready = await asyncio.to_thread(server.read_line)
        credentials = StaticToken(ready["token"])
        transport = await stack.enter_async_context(
            HttpTransport(ready["url"], credentials=credentials)
        )
        fleet = _Fleet(
            Kube(transport, manager="bench", clock=SystemClock()),
            bus := await _start_nats(stack, folder),
        )
        await fleet.fill()
        environ = {
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "KUBECONFIG": str(_kubeconfig(folder, ready["url"], ready["token"])),
            "SLUICE_NATS_URL": bus.url,
            "SLUICE_NATS_TOKEN_FILE": bus.person_token,
        }
        bare = await asyncio.to_thread(_bare_interpreter)
        report.figure("a bare interpreter", bare, "MiB")
        for width, height in SIZES:
            await _measure(report, fleet, environ, bare=bare, width=width, height=height)


async def _measure(
    report: BenchReport,
    fleet: "_Fleet",
    environ: dict[str, str],
    *,
    bare: float,
    width: int,
    height: int,
) -> None:
    name = f"{width}x{height}"
    with _Terminal(width, height).open(environ) as view:
        await view.wait_for(f"{NODES_SHOWN:,} nodes".encode(), b"waits: current")
        started = view.cpu_seconds()
        report.figure(f"{name}: until all is shown", started, "s", note="of CPU, with imports")
        before, written = asyncio.get_running_loop().time(), view.written
        await fleet.change(int(RATE * SECONDS))
        seconds = asyncio.get_running_loop().time() - before
        used = view.cpu_seconds() - started
        rate = RATE * SECONDS / seconds
        report.at_least(f"{name}: changes a second, of 50", rate / RATE, 0.8, "x")
        report.figure(
            f"{name}: written to the terminal", (view.written - written) / seconds / 1024, "KiB/s"
        )
        report.at_most(f"{name}: CPU, of a core", used / seconds, 0.10, "x", note=f"{used:.1f} s")
        memory = view.resident() - bare
        report.at_most(f"{name}: memory beyond the interpreter", memory, 80, "MiB")


class _Fleet:
    """The changes that a rollout makes."""

    def __init__(self, kube: Kube, bus: "_Nats") -> None:
        self._kube = kube
        self._bus = bus
        self._count = 0
        self._uids: dict[str, str] = {}

    async def fill(self) -> None:
        """Install the definitions and a Rollout, and give each node a state and a wait."""
        for manifest in crd_manifests().values():
            await self._apply(f"{_CRDS}/{manifest['metadata']['name']}", manifest)
        rollout = {
            "apiVersion": "sluice.dev/v1alpha1",
            "kind": "Rollout",
            "metadata": {"name": POOL},
        }
        await self._apply(f"{_ROLLOUTS}/{POOL}", rollout)
        listed = await self._kube.list_all(NODES)
        self._uids = {each.metadata.name: each.metadata.uid for each in listed.items}
        await self.change(NODES_SHOWN, rate=0)

    async def change(self, changes: int, *, rate: int = RATE) -> None:
        """Change so many nodes, at a rate; 0: without a limit."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        names = list(self._uids)
        for number in range(changes):
            await self._change(names[self._count % len(names)])
            self._count += 1
            if rate:
                await asyncio.sleep(max(0.0, number / rate - (loop.time() - began)))

    async def _change(self, name: str) -> None:
        state = STATES[self._count % len(STATES)]
        now = SystemClock().now()
        record = NodeRecord(
            node_uid=self._uids[name],
            epoch=1,
            token=1 + self._count,
            pool=POOL,
            state=state,
            since=now,
            deadline=now + 600,
        )
        metadata = {
            "labels": {STATE_LABEL: state},
            "annotations": {RECORD_ANNOTATION: encode(record).decode()},
        }
        await self._kube.request(
            "PATCH",
            NODES.path(name=name),
            body={"metadata": metadata},
            content_type=MERGE_PATCH,
        )
        wait = WaitEvent(
            pool=POOL,
            code=WaitCode.JOBS,
            detail=f"pod train-{self._count} uses 4 GPUs of the node",
            since=now,
            who="the owner of the job",
        )
        await self._bus.publish(wait, node=name, number=self._count)

    async def _apply(self, path: str, body: object) -> None:
        query = {"fieldManager": "bench", "force": "true"}
        await self._kube.request("PATCH", path, query=query, body=body, content_type=APPLY_PATCH)


class _Nats:
    """The scheduler's side of the bus."""

    def __init__(self, url: str, bus: NatsBus, person_token: str) -> None:
        self.url = url
        self.person_token = person_token
        """The file of it."""
        self._bus = bus

    async def publish(self, wait: WaitEvent, *, node: str, number: int) -> None:
        event = Event.of(
            wait,
            id=f"{number}",
            at=wait.since,
            writer=Writer.SCHEDULER,
            message=f"{node}: {wait.detail}",
            node=node,
        )
        subject = subjects.Event(
            cluster="default", node=node, writer=Writer.SCHEDULER, kind=event.kind
        )
        await self._bus.store(subjects.EVENTS, str(subject), encode(event), id=event.id)


async def _start_nats(stack: AsyncExitStack, folder: Path) -> _Nats:
    person, scheduler = (Identity(writer=writer) for writer in (Writer.CTL, Writer.SCHEDULER))
    sign_in = TokenSignIn([person, scheduler], folder)
    nats = await stack.enter_async_context(signed_nats(sign_in))
    bus = await stack.enter_async_context(
        connect(
            url=nats.url,
            identity=scheduler,
            env=make_env(),
            credentials=sign_in.credentials(scheduler),
        )
    )
    await bus.ensure(subjects.EVENTS)
    return _Nats(nats.url, bus, sign_in.credentials(person).token_file)


def _kubeconfig(folder: Path, url: str, token: str) -> Path:
    path = folder / "kubeconfig"
    context = {"cluster": "bench", "user": "bench"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": context}],
        "current-context": "bench",
    }
    path.write_text(json.dumps(content))
    return path


def _bare_interpreter() -> float:
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", _BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        assert process.stdout is not None
        process.stdout.readline()
        return _resident(process.pid)


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


class _Terminal:
    """The program in a pseudo-terminal whose output is counted and dropped."""

    def __init__(self, width: int, height: int) -> None:
        self.written = 0
        self._last = b""
        self._size = struct.pack("HHHH", height, width, 0, 0)
        self._changed = asyncio.Event()

    @contextmanager
    def open(self, environ: dict[str, str]) -> Generator["_Terminal"]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, self._size)
        loop = asyncio.get_running_loop()
        with subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, "watch"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ,
        ) as self._process:
            os.close(theirs)
            loop.add_reader(ours, self._read, ours)
            try:
                yield self
            finally:
                loop.remove_reader(ours)
                self._process.kill()
                self._process.wait()
                os.close(ours)

    def _read(self, terminal: int) -> None:
        data = os.read(terminal, 65_536)
        self.written += len(data)
        self._last = (self._last + data)[-65_536:]
        self._changed.set()

    async def wait_for(self, *texts: bytes) -> None:
        async with asyncio.timeout(120):
            while not all(text in self._last for text in texts):
                self._changed.clear()
                await self._changed.wait()

    def cpu_seconds(self) -> float:
        # The name may contain blanks and brackets: the fields begin after the last bracket.
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / _TICKS

    def resident(self) -> float:
        return _resident(self._process.pid)
