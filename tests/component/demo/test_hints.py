"""A demo on a terminal: its live view, and its output with kubectl, a NATS client and Prometheus.

One demo with one machine runs for all tests. Its live view is looked at and left; it goes on in
lines until its first driver is installed, and is then interrupted as by Ctrl-C.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import urlopen

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from demo.cli import STOPPED
from demo.hints import entry_line, environment_text, link_programs
from demo.paths import DemoPaths
from libs.testing.nvml import NotBuilt, library
from tests.component.ctl.terminal import Session, in_terminal
from tests.support import eventually

T = TypeVar("T")

WITHIN = 240.0
"""Seconds until a machine has its first driver, on a busy computer."""

pytestmark = [
    pytest.mark.together("demo"),
    pytest.mark.dear("one demo for all: what its processes take meanwhile counts as well"),
]

DONE = "is complete: on 1 of 1 nodes"
COMPLETE = "The upgrade is complete. Everything stays up until Ctrl-C."


_VIEW = re.compile(r"\x1b\[\?1049h.*?\x1b\[\?1049l", re.DOTALL)
_BAR = re.compile(r"[^\n]*\r\x1b\[2K")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class RunningDemo:
    """A running demo, its output, and what it showed until its live view was left."""

    def __init__(self, session: Session, view: "SeenView") -> None:
        assert isinstance(session.process, subprocess.Popen), "a program of its own"
        self.process = session.process
        self.view = view
        self._session = session

    @property
    def output(self) -> str:
        """All lines outside the live view."""
        text = self._session.written
        for hidden in (_VIEW, _BAR, _CONTROL):
            text = hidden.sub("", text)
        return text

    async def wait_for(self, words: str) -> None:
        """Wait until the output has a text; fail if the demo ends before."""
        await eventually(
            lambda: words in self.output or self.process.poll() is not None,
            within=WITHIN,
            every=0.2,
        )
        assert words in self.output, self.output

    def line(self, part: str) -> list[str]:
        """Return the words of the first line with this part, as a shell splits them."""
        found = next(line for line in self.output.splitlines() if part in line)
        return shlex.split(found, comments=True)

    def pages(self) -> dict[str, str]:
        """Return the URLs of metrics by name."""
        return dict(re.findall(r"^  (\S.*?) +(http://\S+)$", self.output, re.MULTILINE))

    @property
    def folder(self) -> Path:
        return Path(self.line("  . /")[1]).parent

    async def run(self, part: str, *more: str, until: str = "") -> str:
        """Run the command of a line in a shell that has read the file; return what it prints."""
        words = self.line(part)
        process = await asyncio.create_subprocess_exec(
            "sh",
            *("-c", f'. {shlex.quote(str(self.folder / "env"))}; exec {shlex.join(words)} "$@"'),
            *("sh", *more),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        # What it tells beside its output, such as that it waits, is no part of an answer in JSON.
        told = asyncio.create_task(process.stderr.read())
        output = b""
        try:
            async with asyncio.timeout(WITHIN):
                while line := await process.stdout.readline():
                    output += line
                    if until and until.encode() in output:
                        break
        finally:
            if process.returncode is None and until:
                process.kill()
            code = await process.wait()
        answer, errors = output.decode(), (await told).decode()
        assert until in answer if until else code == 0, answer + errors
        return answer


class SeenView(NamedTuple):
    """What a viewer saw: modes of the terminal while the view is open and once it is left."""

    modes: frozenset[str]
    modes_after: frozenset[str]
    text_after: str


async def look_at_view(session: Session) -> SeenView:
    """Wait for the live view, look around in it, and leave it before a node is done."""
    await session.shows("░  starting services, ", within=WITHIN)
    await session.shows(
        *("Sluice  1 node  other shell: . /", "/env", "node-1", "waits: current"), within=WITHIN
    )
    session.press("?")
    await session.shows("Keys and sources", "sluice status  # the fleet")
    session.press("?")
    modes = frozenset(session.screen.modes)
    session.press("j")
    await session.shows("nvidiadriver-training", "570.86.15", within=WITHIN)
    session.press("q")
    text = await session.shows(
        "The live view is closed; the demo goes on in lines. Everything stays up until Ctrl-C."
    )
    modes_after = frozenset(session.screen.modes)
    await session.shows("0 of 1 nodes are done", within=WITHIN)
    return SeenView(modes, modes_after, text)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """A demo with one machine, interrupted at the end, which must release ports and files."""
    folder = tmp_path_factory.mktemp("demo")
    environ = {name: os.environ[name] for name in ("HOME", "VIRTUAL_ENV") if name in os.environ}
    environ["TMPDIR"] = str(folder)
    with background_loop() as run:
        stack = AsyncExitStack()
        terminal = in_terminal("--nodes", "1", environ=environ, width=120, program="demo")
        session = run(stack.enter_async_context(terminal))
        try:
            running = RunningDemo(session, run(look_at_view(session)))
            yield running
            session.process.send_signal(signal.SIGINT)
            code = run(session.end())
            if code == STOPPED:
                run(session.shows("All processes and files are removed."))
            assert session.echoes
        finally:
            run(stack.aclose())
    if COMPLETE in running.output:  # the tests took longer than its upgrade
        assert code == 0, running.output
    else:
        assert code == STOPPED, running.output
    assert list(folder.iterdir()) == []
    assert [url for url in running.pages().values() if listens(url)] == []


@contextmanager
def background_loop() -> Generator[Callable[[Coroutine[Any, Any, T]], T]]:
    """Run a loop in a thread: the terminal is read also between tests and in their loops."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((urlsplit(url).hostname, urlsplit(url).port)) == 0


def families(url: str) -> dict[str, Metric]:
    with urlopen(url, timeout=10) as answer:
        assert answer.status == 200
        text = answer.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_the_demo_shows_the_live_view_and_goes_on_in_lines_when_it_is_left(
    demo: RunningDemo,
) -> None:
    assert demo.view.modes == {"?1049"}
    assert demo.view.modes_after == {"?7", "?25"}
    assert "The nodes start; none has a driver yet." in demo.view.text_after


async def test_all_metrics_pages_are_in_prometheus_format(demo: RunningDemo) -> None:
    await demo.wait_for(DONE)
    pages = demo.pages()
    services = {"scheduler", *(f"{name}-cluster" for name in ("discovery", "driver"))}
    services |= {"validator-cluster", "telemetry-cluster"}
    assert pages.keys() == services | {"GPUs of node-1", "GPUs of all nodes"}
    found = {name: await asyncio.to_thread(families, url) for name, url in pages.items()}
    for name in services:
        phases = found[name]["sluice_service_phase"].samples
        assert [sample.labels["phase"] for sample in phases if sample.value] == ["ready"]
    (done,) = found["scheduler"]["gpu_operator_nodes_upgrades_done"].samples
    assert done.value == 1


async def test_the_gpus_are_measured_through_pynvml_where_that_is_said(demo: RunningDemo) -> None:
    await demo.wait_for(DONE)
    url = demo.pages()["GPUs of node-1"]
    try:
        library()
    except NotBuilt:
        assert "\nThe GPUs are kept in memory" in demo.output
    else:
        assert "\nThe agents of node-1 read their GPUs through pynvml" in demo.output
    indices = [str(index) for index in range(8)]

    async def are_measured() -> bool:
        # The agent may just have opened them again.
        found = (await asyncio.to_thread(families, url)).get("DCGM_FI_DEV_GPU_TEMP")
        return found is not None and [each.labels["gpu"] for each in found.samples] == indices

    await eventually(are_measured, within=WITHIN, every=0.5)


async def test_any_nats_client_can_read_the_events(demo: RunningDemo) -> None:
    await demo.wait_for(DONE)
    words = demo.line("nats --server")
    options = dict(pairwise(words))
    (prefix,) = (word.partition("=")[2] for word in words if word.startswith("--inbox-prefix="))
    (token,) = re.findall(r"\$\(cat (.*)\)", options["--user"])
    connection = await nats.connect(
        options["--server"],
        token=await asyncio.to_thread(Path(token).read_text),
        inbox_prefix=prefix.encode(),
        allow_reconnect=False,
    )
    try:
        subscription = await connection.jetstream().subscribe(
            options["--all"],
            stream=options["--stream"],
            config=ConsumerConfig(name="reader", ack_policy=AckPolicy.NONE, mem_storage=True),
            manual_ack=True,
        )
        messages: list[str] = []
        while not any(DONE in text for text in messages):
            message = await subscription.next_msg(timeout=10)
            messages.append(cast("dict[str, Any]", json.loads(message.data))["message"])
    finally:
        await connection.close()
    assert any(text.endswith("is the leader (epoch 1)") for text in messages)
    assert "bring-up begins" in messages


async def test_the_commands_of_sluice_answer(demo: RunningDemo) -> None:
    await demo.wait_for(DONE)
    assert "nvidiadriver-training" in await demo.run("  sluice status")
    assert "waits: from scheduler" in await demo.run("  sluice status")
    assert "upgrade-done" in await demo.run("  sluice why")
    assert "node-1" in await demo.run("  sluice events")
    audited = json.loads(await demo.run("  sluice audit", "-o", "json"))["invariants"]
    assert [each["name"] for each in audited if not each["judged"]] == ["I7", "I12"]
    plan = await demo.run("  sluice plan", "-o", "json")
    assert [each["node"] for each in json.loads(plan)["plan"]["nodes"]] == ["node-1"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
async def test_kubectl_shows_the_node_its_events_and_the_rollout(demo: RunningDemo) -> None:
    await demo.wait_for(DONE)
    assert "node-1" in await demo.run("  kubectl get nodes", until="upgrade-done")
    header, row = (await demo.run("  kubectl get rollouts")).splitlines()[:2]
    assert {"TARGET", "PHASE", "DONE", "FAILED", "WAITING", "BECAUSE"} <= set(header.split())
    assert row.startswith("nvidiadriver-training ")
    assert "Building kernel modules" in await demo.run("  kubectl --namespace")
    described = await demo.run("  kubectl describe")
    assert "nvidia.com/gpu.present=true" in described
    events = described.partition("\nEvents:")[2]
    assert "GPUDriverUpgrade" in events
    assert "node state label to upgrade-done" in events


async def test_the_files_of_the_demo_are_private(demo: RunningDemo) -> None:
    await demo.wait_for(DONE)
    assert demo.folder.stat().st_mode & 0o077 == 0


async def test_another_shell_finds_the_command_and_the_cluster(tmp_path: Path) -> None:
    paths = DemoPaths(tmp_path / "with a blank")
    paths.programs.mkdir(parents=True)
    link_programs(paths, os.environ)
    settings = {"KUBECONFIG": f"{tmp_path}/it's.kubeconfig"}
    paths.environment.write_text(environment_text(settings, paths.programs))
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'{entry_line(paths)}; command -v sluice; echo "$KUBECONFIG"; echo "$PATH"'),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    command, kubeconfig, path = out.decode().splitlines()
    assert command == str(paths.programs / "sluice")
    assert kubeconfig == settings["KUBECONFIG"]
    assert path == f"{paths.programs}:{os.environ['PATH']}"
