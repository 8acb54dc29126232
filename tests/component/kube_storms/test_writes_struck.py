"""A write that meets one fault: what the client says of it, and whether it was carried out."""

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
from libs.testing.apiserver.faults import Cut, Delay, Hang, Refuse, Restart, Slow, Stale
from tests.component.kube_storms.village import MAPS, PLACE, Village, failure, live, wanted

WRITTEN = [("create", "m")]


def test_a_write_that_is_delayed_in_the_server_is_carried_out_within_its_time() -> None:
    async def story(v: Village) -> None:
        fault = v.strike(Delay(2.0), "create")
        made = await v.kube.create(MAPS, wanted("m"), namespace=PLACE, within=3.0)
        assert v.clock.monotonic() == 2.0
        assert fault.struck == v.asked["POST"] == 1
        assert made.data == {"value": "1"}
        assert v.committed() == WRITTEN

    live(story)


def test_the_server_gives_up_a_write_when_its_client_does() -> None:
    async def story(v: Village) -> None:
        fault = v.strike(Delay(5.0), "create")
        error = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE, within=3.0))
        assert type(error) is TimedOut
        assert v.clock.monotonic() == 3.0
        await v.clock.sleep(60.0)
        assert fault.struck == v.asked["POST"] == 1
        assert v.committed() == []

    live(story)


def test_a_write_that_is_late_on_its_way_may_be_carried_out_after_its_client_gave_up() -> None:
    async def story(v: Village) -> None:
        fault = v.strike(Delay(5.0, where="way"), "create")
        error = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE, within=3.0))
        assert type(error) is TimedOut
        assert v.committed() == []
        await v.clock.sleep(2.0)
        await v.settle()
        assert fault.struck == v.asked["POST"] == 1
        assert v.committed() == WRITTEN

    live(story)


def test_a_write_that_hangs_is_given_up_in_time_and_never_carried_out() -> None:
    async def story(v: Village) -> None:
        fault = v.strike(Hang(), "create")
        error = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE))
        assert type(error) is TimedOut
        assert "no whole answer" in error.message
        assert v.clock.monotonic() == 10.0
        await v.clock.sleep(600.0)
        assert fault.struck == v.asked["POST"] == 1
        assert v.committed() == []

    live(story)


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
def test_a_refused_write_is_a_typed_error_at_once_and_nothing_else(
    code: int, kind: type[KubeError]
) -> None:
    async def story(v: Village) -> None:
        fault = v.strike(Refuse(code), "create")
        error = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE))
        assert type(error) is kind
        assert error.code == code
        assert v.clock.monotonic() == 0.0
        assert fault.struck == v.asked["POST"] == 1
        assert v.committed() == []
        await v.kube.create(MAPS, wanted("m"), namespace=PLACE)
        assert v.committed() == WRITTEN

    live(story)


def test_a_429_says_how_long_to_wait() -> None:
    async def story(v: Village) -> None:
        fault = v.strike(Refuse(429, retry_after=7), "create")
        error = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE))
        assert isinstance(error, TooManyRequests)
        assert error.retry_after == 7.0
        assert fault.struck == 1

    live(story)


def test_a_write_that_is_cut_off_before_it_is_done_is_unavailable_and_not_there() -> None:
    async def story(v: Village) -> None:
        fault = v.strike(Cut("before"), "create")
        error = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE))
        assert type(error) is Unavailable
        assert fault.struck == v.asked["POST"] == 1
        assert v.committed() == []

    live(story)


@pytest.mark.parametrize("at", ["after", "body"])
def test_a_write_whose_answer_is_cut_off_is_unavailable_and_there(at: str) -> None:
    async def story(v: Village) -> None:
        fault = v.strike(Cut("after" if at == "after" else "body"), "create")
        error = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE))
        assert type(error) is Unavailable
        again = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE))
        assert type(again) is AlreadyExists
        assert fault.struck == 1
        assert v.asked["POST"] == 2
        assert v.committed() == WRITTEN

    live(story)


def test_an_answer_that_comes_slowly_is_waited_for_within_its_time() -> None:
    async def story(v: Village) -> None:
        await v.kube.create(MAPS, wanted("m"), namespace=PLACE)
        size = len(await v.kube.request("GET", MAPS.path(namespace=PLACE, name="m")))
        fault = v.strike(Slow(size // 4 + 1, 2.0), "get", times=None)
        assert (await v.kube.get(MAPS, "m", namespace=PLACE)).data == {"value": "1"}
        assert v.clock.monotonic() == 8.0
        error = await failure(v.kube.get(MAPS, "m", namespace=PLACE, within=5.0))
        assert type(error) is TimedOut
        assert v.clock.monotonic() == 13.0
        assert fault.struck == 2

    live(story)


def test_a_write_decided_on_a_stale_list_is_a_conflict_not_a_lost_update() -> None:
    async def story(v: Village) -> None:
        await v.write(m="1")
        await v.write(m="2")
        fault = v.strike(Stale(1), times=None)
        old = await v.kube.page(MAPS, namespace=PLACE, resource_version="0")
        assert [view.data for view in old.items] == [{"value": "1"}]
        change, revision = {"data": {"value": "mine"}}, old.items[0].metadata.resource_version
        error = await failure(
            v.kube.merge(MAPS, "m", change, namespace=PLACE, resource_version=revision)
        )
        assert type(error) is Conflict
        assert fault.struck == 1
        assert await v.there() == {"m": "2"}
        assert v.committed() == []

    live(story)


def test_a_write_that_meets_a_restart_is_unavailable_and_what_was_there_stays() -> None:
    async def story(v: Village) -> None:
        await v.write(a="1")
        fault = v.strike(Restart(), "create")
        error = await failure(v.kube.create(MAPS, wanted("m"), namespace=PLACE))
        assert type(error) is Unavailable
        assert fault.struck == 1
        assert await v.there() == {"a": "1"}
        await v.kube.create(MAPS, wanted("m"), namespace=PLACE)
        assert await v.there() == {"a": "1", "m": "1"}

    live(story)
