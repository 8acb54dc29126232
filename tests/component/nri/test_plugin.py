"""The plugin at a container runtime: registration, answers, errors, restarts, hostile streams."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from libs.host.machine import InlineOffload
from libs.host.nri import api_pb2 as api
from libs.host.nri import frames
from libs.host.nri.plugin import CHECK_EVERY, RETRY, NriPlugin
from libs.host.nri.port import InjectionRefused, NewContainer
from libs.host.tree import Tree
from libs.runtime.clock import SystemClock
from tests.component.nri.runtime import PluginError, Runtime
from tests.support import eventually

GPU = "nvidia.com/gpu=0"


class ByName:
    """Gives a GPU to containers of this name, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[NewContainer] = []

    def devices(self, container: NewContainer) -> Sequence[str]:
        self.asked.append(container)
        if container.name == "refused":
            raise InjectionRefused("it may not")
        if container.name == "broken":
            raise ZeroDivisionError
        return [GPU] * (container.name == "main")


class Hurried(SystemClock):
    """Waits no longer than a test; keeps what it was asked to wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0.01)


@pytest.fixture
def clock() -> Hurried:
    return Hurried()


@pytest.fixture
def injector() -> ByName:
    return ByName()


@pytest.fixture
async def plugin(runtime: Runtime, injector: ByName, clock: Hurried) -> AsyncIterator[NriPlugin]:
    tree = Tree(runtime.socket.parents[2])
    plugin = NriPlugin(injector, tree=tree, offload=InlineOffload(), clock=clock)
    running = asyncio.create_task(plugin.run())
    yield plugin
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_containers_get_what_the_plugin_says(
    runtime: Runtime, plugin: NriPlugin, injector: ByName
) -> None:
    assert plugin.problem
    await runtime.synchronized.wait()
    (registration,) = runtime.registrations
    assert (registration.plugin_name, registration.plugin_idx) == ("sluice", "10")
    assert runtime.events == [0b1000], "only the creation of containers"
    assert plugin.problem == ""
    env = ("NVIDIA_VISIBLE_DEVICES=all",)
    notes = {"nvidia.cdi.k8s.io/pod": "x" * 10_000}
    given = await runtime.create(namespace="a", env=env, devices=("b/c=d",), annotations=notes)
    assert given == [GPU]
    assert await runtime.create("side", namespace="a") == []
    devices = frozenset(("b/c=d",))
    first = NewContainer(namespace="a", pod="pod", name="main", annotations=notes, devices=devices)
    assert injector.asked[0] == first


async def test_containers_that_exist_may_be_told_in_parts(
    runtime: Runtime, plugin: NriPlugin
) -> None:
    runtime.batches = 3
    await runtime.synchronized.wait()
    assert await runtime.create(namespace="a") == [GPU]


async def test_failures_are_answered_as_errors(runtime: Runtime, plugin: NriPlugin) -> None:
    """A container is created by a runtime that gets no answer, and not after an error."""
    await runtime.synchronized.wait()
    with pytest.raises(PluginError, match=r"7, 'it may not'"):
        await runtime.create("refused", namespace="a")
    with pytest.raises(PluginError, match=r"13, 'the plugin of Sluice failed"):
        await runtime.create("broken", namespace="a")
    with pytest.raises(PluginError, match=r"12, .* does not have this method"):
        await runtime.ask("StopContainer", api.Empty())
    with pytest.raises(PluginError, match=r"12, .* does not have this method"):
        await runtime.ask("CreateContainer", api.Empty(), service="another")
    with pytest.raises(PluginError, match=r"3, .* cannot read the request"):
        await runtime.ask("CreateContainer", api.CDIDevice(name="no message"))
    assert await runtime.ask("Shutdown", api.Empty()) == b""
    assert await runtime.create(namespace="a") == [GPU], "the connection has survived all that"


async def test_the_plugin_comes_back_after_the_runtime_was_restarted(
    runtime: Runtime, plugin: NriPlugin, clock: Hurried
) -> None:
    await runtime.synchronized.wait()
    before = len(clock.waits)
    await runtime.stop()
    await eventually(lambda: "does not accept connections" in plugin.problem, within=30)
    runtime.socket.unlink()
    await eventually(lambda: "there is no socket /var/run/nri" in plugin.problem, within=30)
    assert set(clock.waits[before:]) == {RETRY}
    await runtime.start()
    await runtime.synchronized.wait()
    assert await runtime.create(namespace="a") == [GPU]
    assert plugin.problem == ""


async def test_a_runtime_that_drops_the_plugin_gets_it_again(
    runtime: Runtime, plugin: NriPlugin
) -> None:
    await runtime.synchronized.wait()
    runtime.drop()
    await eventually(lambda: len(runtime.registrations) == 2, within=30)


async def test_a_runtime_that_refuses_the_plugin(
    runtime: Runtime, plugin: NriPlugin, clock: Hurried
) -> None:
    runtime.refusal = "not\nallowed"
    await eventually(lambda: "the plugin of Sluice: not allowed" in plugin.problem, within=30)
    assert set(clock.waits) == {CHECK_EVERY}
    runtime.refusal = ""
    await runtime.synchronized.wait()
    await eventually(lambda: not plugin.problem, within=30)


@pytest.mark.parametrize(
    "stream",
    [
        b"\x00\x00\x00\x01\xff\xff\xff\xff",
        frames.encode(frames.PLUGIN, b"\xff\xff\xff\xff\x00\x00\x00\x01\x01\x00"),
        frames.encode(frames.PLUGIN, b"\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00"),
        frames.encode(frames.RUNTIME, b"\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00"),
        frames.encode(frames.RUNTIME, b"\x00\x00\x00\x01\x00\x00\x00\x01\x02\x00\xff"),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_hostile_streams_end_the_connection(
    runtime: Runtime, plugin: NriPlugin, stream: bytes
) -> None:
    problems: list[str] = []
    await runtime.synchronized.wait()
    runtime.send(stream)
    await eventually(lambda: problems.append(plugin.problem) or any(problems), within=30)
    assert any("does not speak NRI" in problem for problem in problems)
    await eventually(lambda: len(runtime.registrations) == 2, within=30)


async def test_connections_that_are_not_of_the_plugin_are_passed_over(
    runtime: Runtime, plugin: NriPlugin
) -> None:
    await runtime.synchronized.wait()
    runtime.send(frames.encode(9, b"\xff" * 20))
    assert await runtime.create(namespace="a") == [GPU]


async def test_a_link_does_not_lead_out_of_the_machine(
    runtime: Runtime, plugin: NriPlugin, tmp_path: Path
) -> None:
    """The folder of the socket is a link to /run, which is that of the machine."""
    await runtime.synchronized.wait()
    await runtime.stop()
    runtime.socket.rename(runtime.socket.parents[2] / "outside.sock")
    runtime.socket.symlink_to(runtime.socket.parents[2] / "outside.sock")
    await eventually(lambda: "there is no socket" in plugin.problem, within=30)
    runtime.socket.unlink()
    await runtime.start()
