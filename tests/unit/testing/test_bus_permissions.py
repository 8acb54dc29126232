"""Permissions on the in-process bus."""

from typing import TYPE_CHECKING

import pytest

from libs.bus.permissions import Permissions
from libs.bus.port import LastPerSubject, SubjectForbidden
from libs.contracts.subjects import direct_get, js_api
from libs.testing.bus import LocalBus, LocalServer
from libs.testing.simulation import Sim
from tests.component.bus.recorders import RecordingFollower, RecordingHandler
from tests.unit.testing.bus import KEPT, READER, WRITER, with_bus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def test_calls_without_permission_are_refused() -> None:
    calls: dict[str, Callable[[LocalBus], Awaitable[object]]] = {
        "test.b": lambda bus: bus.publish("test.b", b""),
        "ask.b": lambda bus: bus.request("ask.b", b""),
        "test.>": lambda bus: bus.subscribe("test.>", RecordingHandler()),
        "kept.b": lambda bus: bus.store(KEPT, "kept.b", b""),
        direct_get("KEPT", "kept.b"): lambda bus: bus.last(KEPT, "kept.b"),
        js_api("STREAM", "PURGE", "KEPT"): lambda bus: bus.purge(KEPT, "kept.a"),
        js_api("STREAM", "INFO", "KEPT"): lambda bus: bus.ensure(KEPT),
        js_api("CONSUMER", "CREATE", "KEPT"): lambda bus: bus.follow(
            KEPT, "kept.a", RecordingFollower(), start=LastPerSubject()
        ),
    }

    async def scenario(sim: Sim, server: LocalServer) -> None:
        owner, handler = server.connect(WRITER), RecordingHandler()
        await owner.ensure(KEPT)
        await owner.subscribe(">", handler)
        permissions = Permissions(
            publish=("test.a", "kept.a", direct_get("KEPT", "kept.a")), subscribe=("test.*",)
        )
        bus = server.connect(READER, permissions=permissions)
        for subject, call in calls.items():
            with pytest.raises(SubjectForbidden) as caught:
                await call(bus)
            assert "default/-/ctl may not" in str(caught.value)
            assert subject in str(caught.value)
        await sim.clock.sleep(1.0)
        assert handler.received == []
        permitted = RecordingHandler()
        await bus.subscribe("test.*", permitted)
        await bus.publish("test.a", b"")
        assert await bus.store(KEPT, "kept.a", b"") == 1
        assert await bus.last(KEPT, "kept.a") is not None
        assert permitted.received == [("test.a", b"")]

    with_bus(scenario)
