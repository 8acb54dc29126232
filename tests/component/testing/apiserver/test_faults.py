"""Each thing that can go wrong on demand does, where it was told to and as often."""

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
    Restart,
    SlowBody,
    Stale,
)
from tests.component.testing.apiserver.world import (
    CONFIG,
    NODES,
    ApiServerWorld,
    describe_event,
    events,
    run_world,
)

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


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
def test_a_refusal_is_answered_as_often_as_was_said(code: int, error: type[KubeError]) -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1")
        fault = town.server.faults.add(
            Fault(effect=RefuseRequest(code, retry_after=7), verbs=("get",), kind="Node", times=2)
        )
        for _ in range(2):
            with pytest.raises(error) as refused:
                await town.kube.get(resources.NODES, "n1")
            if isinstance(refused.value, TooManyRequests):
                assert refused.value.retry_after == 7
        assert (await town.kube.get(resources.NODES, "n1")).metadata.name == "n1"
        assert fault.hit_count == 2

    run_world(main)


def test_a_fault_strikes_only_whom_it_is_for() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1")
        faults = town.server.faults
        for_bob = faults.add(Fault(effect=RefuseRequest(500), user="bob", kind="Node", name="n1"))
        status = faults.add(Fault(effect=RefuseRequest(500), subresource="status"))
        await town.client("ann").get(resources.NODES, "n1")
        with pytest.raises(Unavailable):
            await town.client("bob").get(resources.NODES, "n1")
        assert (await town.ask("GET", f"{NODES}/n1/status"))[0] == 500
        assert (for_bob.hit_count, status.hit_count) == (1, 1)
        faults.remove(status)
        assert (await town.ask("GET", f"{NODES}/n1/status"))[0] == 200
        faults.clear()
        await town.client("bob").get(resources.NODES, "n1")

    run_world(main)


def test_a_probability_strikes_the_same_requests_in_each_run() -> None:
    async def main(town: ApiServerWorld) -> list[int]:
        await town.node("n1")
        town.server.faults.add(Fault(effect=RefuseRequest(500), probability=0.3, verbs=("get",)))
        return [(await town.ask("GET", f"{NODES}/n1"))[0] for _ in range(200)]

    codes = run_world(main, seed=5)
    assert 30 < codes.count(500) < 90
    assert codes == run_world(main, seed=5)
    assert codes != run_world(main, seed=6)


def test_a_connection_is_cut_before_after_or_within() -> None:
    async def main(town: ApiServerWorld) -> None:
        faults = town.server.faults
        for does, made in ((Cut("before"), False), (Cut("after"), True), (Cut("body"), True)):
            at = does.at
            cut = faults.add(Fault(effect=does, verbs=("create",), times=1))
            with pytest.raises(Unavailable):
                await town.kube.create(resources.NODES, {"metadata": {"name": f"n-{at}"}})
            assert cut.hit_count == 1
            assert ((await town.ask("GET", f"{NODES}/n-{at}"))[0] == 200) is made
        codes = [each.code for each in town.server.journal.revisions]
        assert codes == [201, 201]

    run_world(main)


def test_a_delayed_write_is_carried_out_though_nobody_waits_for_it_any_more() -> None:
    async def main(town: ApiServerWorld) -> None:
        slow = Fault(effect=Delay(5.0, "way"), kind="Node", verbs=("create",), times=1)
        town.server.faults.add(slow)
        with pytest.raises(TimedOut):
            await town.kube.create(resources.NODES, {"metadata": {"name": "n1"}}, within=3.0)
        assert (await town.ask("GET", f"{NODES}/n1"))[0] == 404
        await town.sim.clock.sleep(3.0)
        assert (await town.ask("GET", f"{NODES}/n1"))[0] == 200

    run_world(main)


def test_a_server_that_is_slow_gives_up_at_the_deadline_it_was_told() -> None:
    async def main(town: ApiServerWorld) -> None:
        town.server.faults.add(Fault(effect=Delay(5.0), verbs=("create",), times=2))
        with pytest.raises(TimedOut):
            await town.kube.create(resources.NODES, {"metadata": {"name": "n1"}}, within=3.0)
        await town.sim.clock.sleep(10.0)
        assert (await town.ask("GET", f"{NODES}/n1"))[0] == 404
        code, refused = await town.ask("POST", NODES, {"metadata": {"name": "n"}}, timeout="500ms")
        assert (code, refused["reason"], town.sim.clock.monotonic()) == (504, "Timeout", 13.5)
        assert [each.code for each in town.server.journal.revisions] == [504, 504]

    run_world(main)


def test_two_writes_arrive_in_another_order_than_they_were_sent() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1")
        town.server.faults.add(Fault(effect=Delay(1.0, "way"), user="ann", times=1))
        node = await town.kube.get(resources.NODES, "n1")
        at = node.metadata.resource_version

        async def label(user: str) -> None:
            change = {"metadata": {"labels": {"by": user}}}
            await town.client(user).merge(resources.NODES, "n1", change, resource_version=at)

        first = asyncio.create_task(label("ann"))
        await town.sim.clock.sleep(0.1)
        await label("bob")
        with pytest.raises(Conflict):
            await first
        assert [(each.user, each.code) for each in town.server.journal.revisions][1:] == [
            ("bob", 200),
            ("ann", 409),
        ]

    run_world(main)


def test_a_server_that_hangs_does_nothing() -> None:
    async def main(town: ApiServerWorld) -> None:
        hang = town.server.faults.add(Fault(effect=Hang(), times=2))
        with pytest.raises(TimedOut):
            await town.kube.create(resources.NODES, {"metadata": {"name": "n1"}}, within=3.0)
        with pytest.raises(TimedOut):
            await town.kube.get(resources.NODES, "n1")
        assert (hang.hit_count, town.sim.clock.monotonic()) == (2, 13.0)
        assert (await town.ask("GET", f"{NODES}/n1"))[0] == 404

    run_world(main)


def test_a_write_under_way_dies_with_the_server() -> None:
    async def main(town: ApiServerWorld) -> None:
        town.server.faults.add(Fault(effect=Delay(5.0), times=1))
        creating = asyncio.create_task(town.node("n1"))
        await town.sim.clock.sleep(1.0)
        await town.server.restart()
        with pytest.raises(Unavailable):
            await creating
        await town.sim.clock.sleep(10.0)
        assert (await town.ask("GET", f"{NODES}/n1"))[0] == 404

    run_world(main)


def test_a_request_that_hangs_dies_with_the_server() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1")
        town.server.faults.add(Fault(effect=Hang(), times=1))
        getting = asyncio.create_task(town.kube.get(resources.NODES, "n1"))
        await town.sim.clock.sleep(1.0)
        await town.server.restart()
        with pytest.raises(Unavailable, match="cut"):
            await getting
        assert town.sim.clock.monotonic() == 1.0

    run_world(main)


def test_a_watch_is_dropped_after_so_many_events() -> None:
    async def main(town: ApiServerWorld) -> None:
        at = str(town.server.revision)
        for number in range(4):
            await town.node(f"n{number}")
        query = {"watch": "1", "resourceVersion": at}
        faults = town.server.faults
        clean = faults.add(Fault(effect=DropWatch(after=2), verbs=("watch",), times=1))
        async with town.kube.stream(NODES, query=query) as answer:
            assert [describe_event(event) async for event in events(answer)] == [
                ("ADDED", "n0"),
                ("ADDED", "n1"),
            ]
        cut = faults.add(Fault(effect=DropWatch(after=3, clean=False), times=1))
        async with town.kube.stream(NODES, query=query) as answer:
            stream = events(answer)
            assert [describe_event(await anext(stream))[1] for _ in range(3)] == ["n0", "n1", "n2"]
            with pytest.raises(Unavailable):
                await anext(stream)
        assert (clean.hit_count, cut.hit_count) == (1, 1)
        async with town.kube.stream(NODES, query=query) as answer:
            stream = events(answer)
            assert [describe_event(await anext(stream))[1] for _ in range(4)] == [
                "n0",
                "n1",
                "n2",
                "n3",
            ]
            assert faults.drop_watches(kind="Pod") == 0
            assert faults.drop_watches(kind="Node", clean=True) == 1
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    run_world(main)


def test_only_a_list_that_may_be_old_is_old() -> None:
    async def main(town: ApiServerWorld) -> None:
        for name in "abc":
            await town.config(name)
        stale = town.server.faults.add(Fault(effect=Stale(2), verbs=("list",)))

        async def names(**query: str) -> tuple[list[str], int]:
            _, listed = await town.ask("GET", CONFIG, **query)
            found = [each["metadata"]["name"] for each in listed["items"]]
            return found, town.server.revision - int(listed["metadata"]["resourceVersion"])

        assert await names() == (["a", "b", "c"], 0)
        assert await names(resourceVersion="0") == (["a"], 2)
        assert await names(resourceVersion=str(town.server.revision - 1)) == (["a", "b"], 1)
        assert stale.hit_count == 2

    run_world(main)


def test_a_slow_body_takes_its_time() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1")
        size = len(await town.kube.request("GET", f"{NODES}/n1"))
        town.server.faults.add(
            Fault(effect=SlowBody(piece=100, seconds=0.5), verbs=("get",), times=2)
        )
        body = await town.kube.request("GET", f"{NODES}/n1")
        assert (len(body), town.sim.clock.monotonic()) == (size, 0.5 * -(-size // 100))
        with pytest.raises(TimedOut):
            await town.kube.request("GET", f"{NODES}/n1", within=1.0)

    run_world(main)


def test_a_request_can_bring_the_server_down() -> None:
    async def main(town: ApiServerWorld) -> None:
        town.server.faults.add(Fault(effect=Restart(), verbs=("create",), times=1))
        query = {"watch": "1", "resourceVersion": str(town.server.revision)}
        async with town.kube.stream(NODES, query=query) as answer:
            with pytest.raises(Unavailable):
                await town.kube.create(resources.NODES, {"metadata": {"name": "n1"}})
            with pytest.raises(Unavailable):
                await anext(events(answer))
        await town.node("n1")

    run_world(main)


def test_a_watch_that_is_cut_as_it_opens_listens_no_more() -> None:
    async def main(town: ApiServerWorld) -> int:
        town.server.faults.add(Fault(effect=Cut("after"), verbs=("watch",), times=1))
        with pytest.raises(Unavailable):
            async with town.kube.stream(NODES, query={"watch": "1"}):
                pass
        return town.server.open_watches

    assert run_world(main) == 0


def test_a_watch_whose_asker_goes_as_it_opens_listens_no_more() -> None:
    async def main(town: ApiServerWorld) -> list[int]:
        found: list[int] = []
        for turns in range(8):

            async def listen() -> None:
                async with town.kube.stream(NODES, query={"watch": "1"}) as answer:
                    await anext(events(answer))

            asking = asyncio.create_task(listen())
            for _ in range(turns):
                await town.sim.clock.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
            found.append(town.server.open_watches)
        return found

    assert run_world(main) == [0] * 8


def test_an_error_says_which_server_it_was() -> None:
    async def main(town: ApiServerWorld) -> str:
        town.server.faults.add(Fault(effect=Hang(), verbs=("get",)))
        with pytest.raises(Unavailable) as caught:
            await town.kube.get(resources.NODES, "n1")
        return str(caught.value)

    assert "the simulated server" in run_world(main)
