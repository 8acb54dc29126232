"""Events on a simulated server: what is written, how often, and what is dropped."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import pytest
import structlog
from structlog.testing import LogCapture

from libs.kube.client import Kube
from libs.kube.events import (
    FLUSH_TIMEOUT,
    MAX_GROUPS,
    MAX_TRIES,
    MAX_UNWRITTEN,
    MIN_WRITE_INTERVAL,
    REPEAT_WINDOW,
    SOURCE,
    EventRecorder,
    InvolvedObject,
)
from libs.runtime.tasks import Tasks
from libs.testing.apiserver.faults import Cut, Delay, Fault, Hang, RefuseRequest
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim
from tests.unit.kube.world import SimWorld, in_virtual_time

if TYPE_CHECKING:
    from libs.runtime.fatal import Fatal

NODE = InvolvedObject(kind="Node", name="gpu-1", uid="1234")
Type = Literal["Normal", "Warning"]


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    capture = LogCapture()
    structlog.configure(processors=[capture])
    yield capture.entries
    structlog.reset_defaults()


class World(SimWorld):
    """A recorder that runs as a service's task, and a server."""

    def __init__(self, sim: Sim) -> None:
        super().__init__(sim)
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.kube = Kube(self.server.transport(user="us"), manager="sluice", clock=sim.clock)
        self.events = EventRecorder(kube=self.kube, env=sim.env("events"))
        self.failures: list[Fatal] = []
        self.tasks = Tasks("service", failed=self.failures.append)
        self.tasks.forever("events", self.events.run())

    async def close(self) -> None:
        await self.tasks.close()
        await self.server.stop()
        assert not self.failures

    def record(
        self,
        message: str,
        *,
        about: InvolvedObject = NODE,
        type: Type = "Normal",
        reason: str = "Upgraded",
        group: str = "",
    ) -> None:
        self.events.record(about, type=type, reason=reason, message=message, group=group)

    async def stored(self, namespace: str = "default") -> list[Any]:
        """Return the events of the server in the order of their creation or last change."""
        body = await self.kube.request("GET", f"/api/v1/namespaces/{namespace}/events")
        return sorted(
            json.loads(body)["items"], key=lambda event: int(event["metadata"]["resourceVersion"])
        )

    def writes(self) -> list[str]:
        """Return the verbs of all writes of events, refused ones included."""
        return [
            entry.verb.value for entry in self.server.journal.revisions if entry.kind == "Event"
        ]


@in_virtual_time(World)
async def test_a_long_name_is_cut_to_a_valid_one(world: World) -> None:
    world.record("well", about=InvolvedObject(kind="Node", name=f"{'n' * 228}-.{'n' * 20}"))
    await world.clock.sleep(1)
    (event,) = await world.stored()
    assert event["metadata"]["name"].startswith(f"{'n' * 228}.")


@in_virtual_time(World)
async def test_an_event_of_a_node_is_in_the_default_namespace(world: World) -> None:
    world.record("to 580.95", type="Warning")
    await world.clock.sleep(1)
    (event,) = await world.stored()
    name, _, digits = event["metadata"]["name"].rpartition(".")
    assert name == "gpu-1"
    assert int(digits, 16)
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "gpu-1",
        "uid": "1234",
    }
    assert event["source"] == {"component": SOURCE}
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "Upgraded",
        "to 580.95",
    )
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["count"] == 1


@in_virtual_time(World)
async def test_an_event_of_a_namespaced_object_is_in_its_namespace(world: World) -> None:
    world.record("gone", about=InvolvedObject(kind="Pod", name="driver-x", namespace="kube-system"))
    await world.clock.sleep(1)
    assert [event["message"] for event in await world.stored("kube-system")] == ["gone"]


@in_virtual_time(World)
async def test_repetitions_within_two_minutes_are_counted_in_one_event(world: World) -> None:
    for _ in range(3):
        world.record("waits for a slot")
        await world.clock.sleep(REPEAT_WINDOW - 1)
    (event,) = await world.stored()
    assert event["count"] == 3
    assert event["firstTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["lastTimestamp"] == "2027-01-15T08:03:58Z"
    assert world.writes() == ["create", "patch", "patch"]


@in_virtual_time(World)
async def test_a_repetition_after_two_minutes_is_a_new_event(world: World) -> None:
    world.record("waits for a slot")
    await world.clock.sleep(REPEAT_WINDOW + 1)
    world.record("waits for a slot")
    await world.clock.sleep(1)
    assert [event["count"] for event in await world.stored()] == [1, 1]


@in_virtual_time(World)
async def test_another_object_type_or_reason_is_another_event(world: World) -> None:
    world.record("a")
    world.record("a", about=InvolvedObject(kind="Node", name="gpu-2", uid="1235"))
    world.record("a", type="Warning")
    world.record("a", reason="Cordoned")
    world.record("b")
    await world.clock.sleep(1)
    assert len(await world.stored()) == 5


@in_virtual_time(World)
async def test_a_group_is_one_event_with_the_latest_message(world: World) -> None:
    for done in range(20):
        world.record(f"{done} of 40 nodes done", group="progress")
        await world.clock.sleep(1)
    await world.clock.sleep(MIN_WRITE_INTERVAL)
    (event,) = await world.stored()
    assert (event["count"], event["message"]) == (20, "19 of 40 nodes done")


@in_virtual_time(World)
async def test_repetitions_are_written_every_ten_seconds(world: World) -> None:
    for _ in range(100):
        world.record("waits for a slot")
        await world.clock.sleep(1)
    await world.clock.sleep(MIN_WRITE_INTERVAL)
    (event,) = await world.stored()
    assert event["count"] == 100
    assert len(world.writes()) == pytest.approx(100 / MIN_WRITE_INTERVAL, abs=1)


@in_virtual_time(World)
async def test_further_groups_of_an_object_share_one_event(world: World) -> None:
    for number in range(100):
        world.record(f"holder {number} is in the way")
    await world.clock.sleep(MIN_WRITE_INTERVAL + 1)
    stored = await world.stored()
    assert len(stored) == MAX_GROUPS + 1
    assert [event["count"] for event in stored] == [1] * MAX_GROUPS + [100 - MAX_GROUPS]
    assert stored[-1]["message"] == "(one of many alike) holder 99 is in the way"
    await world.clock.sleep(2 * REPEAT_WINDOW)
    world.record("holder 500 is in the way")
    await world.clock.sleep(1)
    assert (await world.stored())[-1]["message"] == "holder 500 is in the way"


@in_virtual_time(World)
async def test_old_events_are_forgotten(world: World) -> None:
    world.record("a")
    world.record("b")
    await world.clock.sleep(1)
    before = world.writes()
    await world.clock.sleep(REPEAT_WINDOW + 1)
    assert world.writes() == before
    assert not world.events._events  # pyright: ignore[reportPrivateUsage]
    assert not world.events._groups  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("message", ["x" * 5000, "ü" * 5000, "𝄞" * 5000, "\ud800" * 5000])
@in_virtual_time(World)
async def test_messages_are_cut_and_made_encodable(world: World, message: str) -> None:
    world.record(message)
    await world.clock.sleep(1)
    (event,) = await world.stored()
    assert 1018 < len(event["message"].encode()) <= 1024
    assert event["message"].endswith("…")


@pytest.mark.parametrize(
    "fault",
    [
        RefuseRequest(429, retry_after=3),
        RefuseRequest(500),
        Cut("before"),
        Cut("after"),
        Hang(),
        Delay(60),
    ],
    ids=str,
)
@in_virtual_time(World)
async def test_a_temporary_failure_is_retried_and_written_once(world: World, fault: Any) -> None:
    world.server.faults.add(Fault(effect=fault, kind="Event", times=MAX_TRIES - 1))
    world.record("a")
    await world.clock.sleep(0.5)
    world.record("a")
    await world.clock.sleep(60)
    (event,) = await world.stored()
    assert (event["count"], event["message"]) == (2, "a")
    assert world.events.counts.dropped == 0


@in_virtual_time(World)
async def test_retry_after_is_honoured(world: World) -> None:
    world.server.faults.add(Fault(effect=RefuseRequest(429, retry_after=20), kind="Event", times=1))
    world.record("a")
    await world.clock.sleep(19)
    world.record("a")
    assert len(world.writes()) == 1
    await world.clock.sleep(2)
    assert len(world.writes()) == 2


@in_virtual_time(World)
async def test_a_permanent_failure_drops_the_event_and_the_next_is_written(world: World) -> None:
    fault = world.server.faults.add(Fault(effect=RefuseRequest(500), kind="Event"))
    world.record("a")
    await world.clock.sleep(100)
    assert fault.hit_count == MAX_TRIES
    assert world.events.counts.dropped == 1
    world.server.faults.clear()
    world.record("b")
    await world.clock.sleep(1)
    assert [event["message"] for event in await world.stored()] == ["b"]


@in_virtual_time(World)
async def test_a_refusal_is_not_retried_and_logged_once(world: World, logged: list[Any]) -> None:
    fault = world.server.faults.add(Fault(effect=RefuseRequest(403), kind="Event"))
    for number in range(5):
        world.record(str(number))
    await world.clock.sleep(100)
    assert fault.hit_count == 5
    assert world.events.counts.dropped == 5
    assert [line["event"] for line in logged] == ["events are not written"]
    assert "403" in str(logged[0]["exc_info"]) or "forbidden" in str(logged[0]["exc_info"])


@in_virtual_time(World)
async def test_a_recurring_error_is_logged_again(world: World, logged: list[Any]) -> None:
    for number in range(3):
        world.server.faults.add(Fault(effect=RefuseRequest(500), kind="Event", times=2))
        world.record(str(number))
        await world.clock.sleep(100)
    assert len(logged) == 3


@in_virtual_time(World)
async def test_a_success_resets_the_failure_count(world: World) -> None:
    for _ in range(10):
        world.server.faults.add(Fault(effect=RefuseRequest(500), kind="Event", times=MAX_TRIES - 2))
        world.record("a")
        await world.clock.sleep(60)
    (event,) = await world.stored()
    assert event["count"] == 10
    assert world.events.counts.dropped == 0


@in_virtual_time(World)
async def test_a_repetition_during_a_write_is_written_too(world: World) -> None:
    world.server.faults.add(Fault(effect=Delay(1), kind="Event", verbs=("create",)))
    world.record("a")
    await world.clock.sleep(0.5)
    world.record("a")
    world.record("a")
    await world.clock.sleep(MIN_WRITE_INTERVAL + 2)
    (event,) = await world.stored()
    assert event["count"] == 3
    await world.tasks.stop_forever()
    assert world.events.counts.dropped == 0


@in_virtual_time(World)
async def test_a_deleted_namespace_drops_only_its_events(world: World, logged: list[Any]) -> None:
    pod = InvolvedObject(kind="Pod", name="a", namespace="gone")
    for number in range(3):
        world.record(str(number), about=pod)
    world.record("still here")
    await world.clock.sleep(1)
    assert world.events.counts.dropped == 3
    assert [event["message"] for event in await world.stored()] == ["still here"]
    assert [line["event"] for line in logged] == ["events are not written"]


@in_virtual_time(World)
async def test_an_expired_event_is_recreated_with_its_count(world: World) -> None:
    world.record("a")
    await world.clock.sleep(MIN_WRITE_INTERVAL)
    (event,) = await world.stored()
    name = event["metadata"]["name"]
    await world.kube.request("DELETE", f"/api/v1/namespaces/default/events/{name}")
    world.record("a")
    await world.clock.sleep(1)
    (event,) = await world.stored()
    assert event["count"] == 2
    assert event["metadata"]["name"] != name


@in_virtual_time(World)
async def test_unwritten_events_are_limited_and_the_rest_counted(world: World) -> None:
    world.server.faults.add(Fault(effect=Hang(), kind="Event"))
    many = MAX_UNWRITTEN + 500
    for number in range(many):
        world.record("a", about=InvolvedObject(kind="Node", name=f"n{number}"))
        world.record("a", about=InvolvedObject(kind="Node", name=f"n{number}"))
    counts = world.events.counts
    assert (counts.recorded, counts.dropped) == (2 * many, 1000)
    assert world.clock.monotonic() == 0
    world.server.faults.clear()
    await world.clock.sleep(60)
    assert len(await world.stored()) == MAX_UNWRITTEN


@in_virtual_time(World)
async def test_the_oldest_of_too_many_events_are_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 300
    monkeypatch.setattr("libs.kube.events.MAX_EVENTS", many)

    for number in range(many + 100):
        world.record("a", about=InvolvedObject(kind="Node", name=f"n{number}"))
        await world.clock.sleep(0.01)
    kept = world.events._events  # pyright: ignore[reportPrivateUsage]
    assert len(kept) == many
    assert len(world.writes()) == many + 100


@in_virtual_time(World)
async def test_unwritten_events_are_flushed_at_the_end(world: World) -> None:
    world.record("a")
    await world.clock.sleep(1)
    world.record("a")
    world.record("b")
    await world.tasks.stop_forever()
    assert [(event["message"], event["count"]) for event in await world.stored()] == [
        ("a", 2),
        ("b", 1),
    ]
    world.record("too late")
    assert world.events.counts.dropped == 1


@in_virtual_time(World)
async def test_the_flush_is_bounded(world: World) -> None:
    world.server.faults.add(Fault(effect=Hang(), kind="Event"))
    await world.clock.sleep(1)
    for number in range(10):
        world.record(str(number))
    await world.tasks.stop_forever()
    assert world.clock.monotonic() == pytest.approx(1 + FLUSH_TIMEOUT)
    assert world.events.counts.dropped == 10
