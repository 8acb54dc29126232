"""Writes under one fault each: the error, and whether the write was carried out."""

import pytest

from libs.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from libs.testing.apiserver.faults import Cut, Delay, Hang, RefuseRequest, Restart, SlowBody, Stale
from tests.component.kube_storms.world import (
    CONFIG_MAP_VIEWS,
    NAMESPACE,
    World,
    error_of,
    manifest,
    run_story,
)

WRITTEN = [("create", "m")]


def test_the_server_drops_a_write_at_the_client_deadline() -> None:
    async def story(world: World) -> None:
        fault = world.inject(Delay(5.0), "create")
        error = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE, within=3.0)
        )
        assert type(error) is TimedOut
        assert world.clock.monotonic() == 3.0
        await world.clock.sleep(60.0)
        assert fault.hit_count == world.requests["POST"] == 1
        assert world.committed() == []

    run_story(story)


def test_a_write_delayed_on_its_way_may_succeed_after_the_timeout() -> None:
    async def story(world: World) -> None:
        fault = world.inject(Delay(5.0, where="way"), "create")
        error = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE, within=3.0)
        )
        assert type(error) is TimedOut
        assert world.committed() == []
        await world.clock.sleep(2.0)
        await world.settle()
        assert fault.hit_count == world.requests["POST"] == 1
        assert world.committed() == WRITTEN

    run_story(story)


def test_a_hanging_write_times_out_and_never_succeeds() -> None:
    async def story(world: World) -> None:
        fault = world.inject(Hang(), "create")
        error = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        )
        assert type(error) is TimedOut
        assert "no complete response" in error.message
        assert world.clock.monotonic() == 10.0
        await world.clock.sleep(600.0)
        assert fault.hit_count == world.requests["POST"] == 1
        assert world.committed() == []

    run_story(story)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, Unauthorized),
        (403, Forbidden),
        (409, Conflict),
        (429, TooManyRequests),
        (500, Unavailable),
        (503, Unavailable),
        (504, TimedOut),
    ],
)
def test_a_refused_write_is_a_typed_error_without_retry(code: int, kind: type[KubeError]) -> None:
    async def story(world: World) -> None:
        fault = world.inject(RefuseRequest(code), "create")
        error = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        )
        assert type(error) is kind
        assert error.code == code
        assert world.clock.monotonic() == 0.0
        assert fault.hit_count == world.requests["POST"] == 1
        assert world.committed() == []
        await world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        assert world.committed() == WRITTEN

    run_story(story)


def test_a_write_cut_before_it_is_done_is_unavailable() -> None:
    async def story(world: World) -> None:
        fault = world.inject(Cut("before"), "create")
        error = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        )
        assert type(error) is Unavailable
        assert fault.hit_count == world.requests["POST"] == 1
        assert world.committed() == []

    run_story(story)


@pytest.mark.parametrize("at", ["after", "body"])
def test_a_write_whose_response_is_cut_is_unavailable_and_done(at: str) -> None:
    async def story(world: World) -> None:
        fault = world.inject(Cut("after" if at == "after" else "body"), "create")
        error = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        )
        assert type(error) is Unavailable
        again = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        )
        assert type(again) is AlreadyExists
        assert fault.hit_count == 1
        assert world.requests["POST"] == 2
        assert world.committed() == WRITTEN

    run_story(story)


def test_a_slow_response_is_read_within_the_timeout() -> None:
    async def story(world: World) -> None:
        await world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        size = len(
            await world.kube.request("GET", CONFIG_MAP_VIEWS.path(namespace=NAMESPACE, name="m"))
        )
        fault = world.inject(SlowBody(size // 4 + 1, 2.0), "get", times=None)
        assert (await world.kube.get(CONFIG_MAP_VIEWS, "m", namespace=NAMESPACE)).data == {
            "value": "1"
        }
        assert world.clock.monotonic() == 8.0
        error = await error_of(
            world.kube.get(CONFIG_MAP_VIEWS, "m", namespace=NAMESPACE, within=5.0)
        )
        assert type(error) is TimedOut
        assert world.clock.monotonic() == 13.0
        assert fault.hit_count == 2

    run_story(story)


def test_a_write_based_on_a_stale_list_is_a_conflict() -> None:
    async def story(world: World) -> None:
        await world.write(m="1")
        await world.write(m="2")
        fault = world.inject(Stale(1), times=None)
        old = await world.kube.list_page(
            CONFIG_MAP_VIEWS, namespace=NAMESPACE, resource_version="0"
        )
        assert [view.data for view in old.items] == [{"value": "1"}]
        change, revision = {"data": {"value": "mine"}}, old.items[0].metadata.resource_version
        error = await error_of(
            world.kube.merge(
                CONFIG_MAP_VIEWS, "m", change, namespace=NAMESPACE, resource_version=revision
            )
        )
        assert type(error) is Conflict
        assert fault.hit_count == 1
        assert await world.server_objects() == {"m": "2"}
        assert world.committed() == []

    run_story(story)


def test_a_write_during_a_restart_is_unavailable() -> None:
    async def story(world: World) -> None:
        await world.write(a="1")
        fault = world.inject(Restart(), "create")
        error = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        )
        assert type(error) is Unavailable
        assert fault.hit_count == 1
        assert await world.server_objects() == {"a": "1"}
        await world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
        assert await world.server_objects() == {"a": "1", "m": "1"}

    run_story(story)
