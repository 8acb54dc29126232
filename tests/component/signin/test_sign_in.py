"""Sign-in as a process, between a real nats-server and a simulated API server."""

import asyncio
import signal
from contextlib import AsyncExitStack

import pytest

from libs.bus.callout import new_seeds
from libs.bus.nats.bus import NatsBus
from libs.bus.port import BusUnavailable
from libs.contracts.identities import Writer
from libs.contracts.subjects import Beat
from libs.kube.resources import SERVICE_ACCOUNTS
from libs.runtime.watchdog import EXIT_CODE
from libs.testing.apiserver.server import ApiServer
from libs.testing.child_process import ChildProcess
from tests.component.signin.world import Pod, World, cut, metrics
from tests.support import eventually


async def heard(speaker: NatsBus, listener: NatsBus) -> None:
    """Wait until a heartbeat of an agent arrives at a service."""
    beat = str(Beat(cluster="default", node=speaker.identity.node, component="driver"))
    arrived = asyncio.Event()

    def receive(_subject: str, _data: bytes, _reply: str) -> None:
        arrived.set()

    subscription = await listener.subscribe(beat, receive)

    async def sent() -> bool:
        await speaker.publish(beat, b"x")
        await asyncio.sleep(0.01)
        return arrived.is_set()

    await eventually(sent)
    await subscription.close()


async def test_agents_and_services_sign_in(world: World) -> None:
    child = await world.start()
    agent = await world.pod(Writer.DRIVER, "gpu-1")
    scheduler = await world.pod(Writer.SCHEDULER)
    async with world.connect(agent) as on_node, world.connect(scheduler) as service:
        await heard(on_node, service)
    counted = await metrics(child)
    assert counted['answers_total{result="granted"}'] == 2
    assert counted['dropped_total{reason="unreadable"}'] == 0
    await child.end(signal.SIGTERM, code=0)
    assert "Traceback" not in child.log


async def test_people_sign_in_with_a_token_that_they_request(world: World) -> None:
    child = await world.start()
    account = {"metadata": {"name": "sluice-ctl"}}
    await world.kube.create(SERVICE_ACCOUNTS, account, namespace=world.namespace)
    person = await world.pod(Writer.CTL, exists=True)
    person.token_file.write_text(await world.token("sluice-ctl"))
    async with world.connect(person):
        await child.wait_for_log("signed in")
    await world.renew(person)
    with pytest.raises(BusUnavailable):
        async with world.connect(person, wait=3.0):
            pass
    assert "people request theirs for the ServiceAccount alone" in child.log


async def test_a_refused_client_learns_no_reason(world: World) -> None:
    child = await world.start()
    agent = await world.pod(Writer.DRIVER, "gpu-1")
    ref = {"kind": "Pod", "apiVersion": "v1", "name": agent.name, "uid": agent.uid}
    token = await world.token("sluice-driver", audiences=["vault"], boundObjectRef=ref)
    agent.token_file.write_text(token)
    with pytest.raises(BusUnavailable) as refused:
        async with world.connect(agent, wait=3.0):
            pass
    assert "vault" not in str(refused.value)
    await child.wait_for_log("the token is for 'vault'")
    assert "cause=audience" in child.log
    assert "the token is for 'vault'" in world.nats.log
    assert token not in child.log + world.nats.log


async def test_a_deleted_pod_loses_its_connection_and_gets_no_other(world: World) -> None:
    child = await world.start()
    agent = await world.pod(Writer.DRIVER, "gpu-1")
    other = await world.pod(Writer.TELEMETRY, "gpu-2")
    async with AsyncExitStack() as stack:
        gone = await stack.enter_async_context(world.connect(agent))
        stays = await stack.enter_async_context(world.connect(other))
        interrupted = stays.link.down_seconds
        await world.delete(agent)
        await cut(gone)
        await child.wait_for_log("was deleted: its tokens are void")
        assert not gone.link.is_up
        assert stays.link.is_up
        assert stays.link.down_seconds == interrupted
    assert (await metrics(child))["revocations_total"] == 1


async def test_sign_in_is_killed_and_comes_back(world: World) -> None:
    child = await world.start()
    agent = await world.pod(Writer.DRIVER, "gpu-1")
    late = await world.pod(Writer.TELEMETRY, "gpu-2")
    async with world.connect(agent) as bus:
        await child.end(signal.SIGKILL, code=-signal.SIGKILL)
        connecting = asyncio.create_task(_connected(world, late))
        await asyncio.sleep(2.0)
        assert bus.link.is_up
        assert not connecting.done()
        await world.start()
        await connecting
        assert bus.link.is_up


async def _connected(world: World, pod: Pod) -> None:
    async with world.connect(pod, wait=60.0):
        pass


async def test_a_process_that_hangs_ends_and_the_others_serve(world: World) -> None:
    hanging = await world.start(module="tests.component.signin.hanging")
    other = await world.start()
    agent = await world.pod(Writer.DRIVER, "gpu-1")
    await hanging.end(signal.SIGUSR1, code=EXIT_CODE)
    assert "the event loop has hung for 5 s in wait" in hanging.log
    for _ in range(5):
        async with world.connect(agent):
            pass
    assert (await metrics(other))['answers_total{result="granted"}'] == 5


async def test_both_keys_are_replaced_without_a_restart_of_sign_in(world: World) -> None:
    old, new = world.keys.seeds, new_seeds()
    world.write_seeds(old, old)
    child = await world.start(
        next_signing_seed_file=str(world.folder / "next_signing"),
        next_xkey_seed_file=str(world.folder / "next_xkey"),
    )
    agent = await world.pod(Writer.DRIVER, "gpu-1")
    async with world.connect(agent) as bus:
        await _rewritten(world, child, old, new)
        await world.nats.restart(world.config(new))
        await eventually(lambda: bus.link.is_up and bus.link.down_seconds > 0.0)
        await _rewritten(world, child, new, new)
        async with world.connect(agent):
            pass
    counted = await metrics(child)
    assert counted['answers_total{result="granted"}'] == 3
    assert counted['dropped_total{reason="unreadable"}'] == 0


async def _rewritten(world: World, child: ChildProcess, *pairs: tuple[str, str]) -> None:
    """Write the seed files, and wait until they are read."""
    seen = len(child.log)
    world.write_seeds(*pairs)
    await child.wait_for_log("keys of sign-in read", since=seen)


async def test_keys_that_the_server_does_not_use_any_more_end_the_process(world: World) -> None:
    child = await world.start()
    agent = await world.pod(Writer.DRIVER, "gpu-1")
    await world.nats.restart(world.config(new_seeds(), timeout=1))
    connecting = [asyncio.create_task(_connected(world, agent)) for _ in range(8)]
    try:
        await child.wait_for_log("reading the key files again", within=60.0)
        await child.wait_for_log("does not encrypt its requests to", within=60.0)
        await child.wait()
        await child.end(signal.SIGTERM, code=1)  # it has ended by itself
    finally:
        for task in connecting:
            task.cancel()
        await asyncio.wait(connecting)
    assert all(seed not in child.log for seed in world.keys.seeds)


async def test_known_agents_sign_in_while_the_api_server_is_away(
    world: World, apiserver: ApiServer
) -> None:
    child = await world.start()
    agent = await world.pod(Writer.DRIVER, "gpu-1")
    async with world.connect(agent):
        pass
    await apiserver.stop()
    async with world.connect(agent):
        pass
    assert (await metrics(child))['answers_total{result="granted"}'] == 2
