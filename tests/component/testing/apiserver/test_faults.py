"""Fault injection: each fault takes effect where it was placed, and as often."""

import asyncio

import pytest

from libs.kube import resources
from libs.kube.errors import (
    Conflict,
    Forbidden,
    KubeError,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from libs.testing.apiserver.faults import (
    Cut,
    Delay,
    DropWatch,
    Fault,
    Hang,
    RefuseRequest,
    SlowBody,
    Stale,
)
from tests.component.testing.apiserver.world import (
    CONFIG,
    NODES,
    ApiServerWorld,
    describe_event,
    in_world,
    run_world,
    watch_events,
)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (401, Unauthorized),
        (403, Forbidden),
        (409, Conflict),
        (429, TooManyRequests),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
@in_world
async def test_a_request_is_refused_with_the_code_and_as_often_as_the_fault_says(
    world: ApiServerWorld, code: int, error: type[KubeError]
) -> None:
    await world.node("n1")
    fault = world.server.faults.add(
        Fault(effect=RefuseRequest(code, retry_after=7), verbs=("get",), kind="Node", times=2)
    )
    for _ in range(2):
        with pytest.raises(error) as refused:
            await world.kube.get(resources.NODES, "n1")
        if isinstance(refused.value, TooManyRequests):
            assert refused.value.retry_after == 7
    assert (await world.kube.get(resources.NODES, "n1")).metadata.name == "n1"
    assert fault.hit_count == 2


@in_world
async def test_a_fault_affects_only_the_requests_that_it_selects(world: ApiServerWorld) -> None:
    await world.node("n1")
    faults = world.server.faults
    for_bob = faults.add(Fault(effect=RefuseRequest(500), user="bob", kind="Node", name="n1"))
    updates = faults.add(Fault(effect=RefuseRequest(500), verbs=("update",)))
    await world.client("ann").get(resources.NODES, "n1")
    with pytest.raises(Unavailable):
        await world.client("bob").get(resources.NODES, "n1")
    assert (await world.request("PUT", f"{NODES}/n1"))[0] == 500
    assert (for_bob.hit_count, updates.hit_count) == (1, 1)
    faults.remove(updates)
    assert (await world.request("PUT", f"{NODES}/n1"))[0] != 500
    faults.clear()
    await world.client("bob").get(resources.NODES, "n1")


def test_a_seed_decides_which_requests_a_probable_fault_affects() -> None:
    async def main(world: ApiServerWorld) -> list[int]:
        await world.node("n1")
        world.server.faults.add(Fault(effect=RefuseRequest(500), probability=0.3, verbs=("get",)))
        return [(await world.request("GET", f"{NODES}/n1"))[0] for _ in range(200)]

    codes = run_world(main, seed=5)
    assert 30 < codes.count(500) < 90
    assert codes == run_world(main, seed=5)
    assert codes != run_world(main, seed=6)


@pytest.mark.parametrize(
    ("cut", "created"), [(Cut("before"), False), (Cut("after"), True), (Cut("body"), True)]
)
@in_world
async def test_a_cut_connection_leaves_a_write_undone_only_before_it_is_executed(
    world: ApiServerWorld, cut: Cut, created: bool
) -> None:
    world.server.faults.add(Fault(effect=cut, verbs=("create",), times=1))
    with pytest.raises(Unavailable):
        await world.kube.create(resources.NODES, {"metadata": {"name": "n1"}})
    assert ((await world.request("GET", f"{NODES}/n1"))[0] == 200) is created
    codes = [revision.code for revision in world.server.journal.revisions]
    assert codes == ([201] if created else [])


@in_world
async def test_a_write_delayed_on_its_way_is_executed_after_the_client_timed_out(
    world: ApiServerWorld,
) -> None:
    slow = Fault(effect=Delay(5.0, "way"), kind="Node", verbs=("create",), times=1)
    world.server.faults.add(slow)
    with pytest.raises(TimedOut):
        await world.kube.create(resources.NODES, {"metadata": {"name": "n1"}}, within=3.0)
    assert (await world.request("GET", f"{NODES}/n1"))[0] == 404
    await world.sim.clock.sleep(3.0)
    assert (await world.request("GET", f"{NODES}/n1"))[0] == 200


@in_world
async def test_a_write_delayed_in_the_server_is_refused_at_the_request_timeout(
    world: ApiServerWorld,
) -> None:
    world.server.faults.add(Fault(effect=Delay(5.0), verbs=("create",), times=2))
    with pytest.raises(TimedOut):
        await world.kube.create(resources.NODES, {"metadata": {"name": "n1"}}, within=3.0)
    await world.sim.clock.sleep(10.0)
    assert (await world.request("GET", f"{NODES}/n1"))[0] == 404
    node = {"metadata": {"name": "n"}}
    code, refusal = await world.request("POST", NODES, node, timeout="500ms")
    assert (code, refusal["reason"], world.sim.clock.monotonic()) == (504, "Timeout", 13.5)
    assert [revision.code for revision in world.server.journal.revisions] == [504, 504]


@in_world
async def test_a_hanging_request_is_never_executed(world: ApiServerWorld) -> None:
    hang = world.server.faults.add(Fault(effect=Hang(), times=2))
    with pytest.raises(TimedOut):
        await world.kube.create(resources.NODES, {"metadata": {"name": "n1"}}, within=3.0)
    with pytest.raises(TimedOut) as caught:
        await world.kube.get(resources.NODES, "n1")
    assert (hang.hit_count, world.sim.clock.monotonic()) == (2, 13.0)
    assert (await world.request("GET", f"{NODES}/n1"))[0] == 404
    assert "the simulated server" in str(caught.value)


@in_world
async def test_a_watch_is_dropped_after_the_given_number_of_events(world: ApiServerWorld) -> None:
    start = str(world.server.revision)
    for number in range(4):
        await world.node(f"n{number}")
    query = {"watch": "1", "resourceVersion": start}
    faults = world.server.faults
    clean = faults.add(Fault(effect=DropWatch(after=2), verbs=("watch",), times=1))
    async with world.kube.stream(NODES, query=query) as response:
        names = [describe_event(event) async for event in watch_events(response)]
        assert names == [("ADDED", "n0"), ("ADDED", "n1")]
    cut = faults.add(Fault(effect=DropWatch(after=3, clean=False), times=1))
    async with world.kube.stream(NODES, query=query) as response:
        stream = watch_events(response)
        assert [describe_event(await anext(stream))[1] for _ in range(3)] == ["n0", "n1", "n2"]
        with pytest.raises(Unavailable):
            await anext(stream)
    assert (clean.hit_count, cut.hit_count) == (1, 1)
    async with world.kube.stream(NODES, query=query) as response:
        stream = watch_events(response)
        for _ in range(4):
            await anext(stream)
        assert faults.drop_watches(kind="Pod") == 0
        assert faults.drop_watches(kind="Node", clean=True) == 1
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


@in_world
async def test_a_stale_list_is_served_only_where_the_request_permits_its_age(
    world: ApiServerWorld,
) -> None:
    for name in "abc":
        await world.config(name)
    stale = world.server.faults.add(Fault(effect=Stale(2), verbs=("list",)))

    async def names(**query: str) -> tuple[list[str], int]:
        _, listed = await world.request("GET", CONFIG, **query)
        listed_names = [item["metadata"]["name"] for item in listed["items"]]
        return listed_names, world.server.revision - int(listed["metadata"]["resourceVersion"])

    assert await names() == (["a", "b", "c"], 0)
    assert await names(resourceVersion="0") == (["a"], 2)
    assert await names(resourceVersion=str(world.server.revision - 1)) == (["a", "b"], 1)
    assert stale.hit_count == 2


@in_world
async def test_a_slow_body_arrives_in_pieces(world: ApiServerWorld) -> None:
    await world.node("n1")
    size = len(await world.kube.request("GET", f"{NODES}/n1"))
    world.server.faults.add(Fault(effect=SlowBody(piece=100, seconds=0.5), verbs=("get",), times=2))
    body = await world.kube.request("GET", f"{NODES}/n1")
    assert (len(body), world.sim.clock.monotonic()) == (size, 0.5 * -(-size // 100))
    with pytest.raises(TimedOut):
        await world.kube.request("GET", f"{NODES}/n1", within=1.0)


@in_world
async def test_a_watch_cut_while_it_opens_is_not_left_open(world: ApiServerWorld) -> None:
    world.server.faults.add(Fault(effect=Cut("after"), verbs=("watch",), times=1))
    with pytest.raises(Unavailable):
        async with world.kube.stream(NODES, query={"watch": "1"}):
            pass
    assert world.server.open_watches == 0


@in_world
async def test_a_watch_cancelled_while_it_opens_is_not_left_open(world: ApiServerWorld) -> None:
    open_watches: list[int] = []
    for turns in range(8):

        async def listen() -> None:
            async with world.kube.stream(NODES, query={"watch": "1"}) as response:
                await anext(watch_events(response))

        listening = asyncio.create_task(listen())
        for _ in range(turns):
            await world.sim.clock.sleep(0)
        listening.cancel()
        await asyncio.wait({listening})
        open_watches.append(world.server.open_watches)
    assert open_watches == [0] * 8
