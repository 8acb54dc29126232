"""A cache against a dictionary: whatever befalls its server and its connection, in any order.

The cache is told of changes by lists, watches and responses to writes of its owner, each late,
twice, cut or not at all. At every moment no object goes backwards or comes back from the dead; as
soon as the weather is fair again it holds what the server holds, and so does whoever listened.
"""

import asyncio
import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import Unavailable
from libs.kube.resources import CONFIG_MAPS
from libs.kube.views import Object
from libs.testing.simulation import START_TIME, VirtualClock, make_env
from libs.testing.virtual_loop import VirtualLoop
from tests.unit.kube.fake_api_server import (
    CannedResponse,
    FakeApiServer,
    JsonObject,
    encode,
    status_body,
)
from tests.unit.kube.test_cache import view

NAMES = st.sampled_from("abcd")
VERBS = st.sampled_from(["list", "watch", ""])
FAILURES = [
    lambda: CannedResponse(500, status_body(500, "InternalError")),
    lambda: CannedResponse(429, status_body(429, "TooManyRequests")),
    lambda: CannedResponse(403, status_body(403, "Forbidden")),
    lambda: CannedResponse(410, status_body(410, "Expired")),
    lambda: CannedResponse(404, b"404 page not found\n"),
    lambda: CannedResponse(200, b'{"metadata":{"resourceVersion":"3"},"items":[', cut=True),
    lambda: CannedResponse(200, b"<html>\n"),
]


class CacheMachine(RuleBasedStateMachine):
    """One cache, one server, and everything that may go wrong between them."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop(limit=1e7)
        self.runner = asyncio.Runner(loop_factory=lambda: self.loop)
        self.clock = VirtualClock(self.loop, start=START_TIME)
        chance = random.Random(1)
        self.server = FakeApiServer(self.clock, cut=chance.randrange)
        self.responses: list[JsonObject] = []
        self.newest: dict[str, int] = {}
        self.replayed: dict[str, Object] = {}
        self.faults: list[str] = []
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.cache = Cache(
            Kube(self.server, manager="test", clock=self.clock),
            CONFIG_MAPS,
            env=make_env(clock=self.clock, random=random.Random(2)),
            indexes={"initial": lambda each: [each.metadata.uid[-1]]},
        )
        self.cache.on_change(self._replay)
        self.following = asyncio.get_running_loop().create_task(self.cache.run())

    def _replay(self, old: Object | None, new: Object | None) -> None:
        key = (old or new).metadata.key  # type: ignore[union-attr]
        if self.replayed.get(key) != old:
            self.faults.append(f"{key}: told of {old}, but it was {self.replayed.get(key)}")
        if new is None:
            del self.replayed[key]
            return
        revision = int(new.metadata.resource_version)
        if revision <= self.newest.get(key, 0):
            self.faults.append(f"{key}: {revision} after {self.newest[key]}")
        self.newest[key] = revision
        self.replayed[key] = new

    # What people do.

    @rule(name=NAMES, value=st.sampled_from("xyz"))
    def write(self, name: str, value: str) -> None:
        self.responses.append(self.server.put(name, value=value))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.server.delete(name)

    @rule()
    def other_kind(self) -> None:
        self.server.write_other_kind()

    # What the cache hears.

    @precondition(lambda self: self.responses)
    @rule(at=st.integers(0, 100))
    def learn(self, at: int) -> None:
        self.cache.record_write(view(self.responses.pop(at % len(self.responses))))

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.5, 5.0, 70.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.runner.run(self.clock.sleep(seconds))

    @rule()
    def prove(self) -> None:
        revision = self.server.revision
        if self.runner.run(self.cache.verify_current(within=3.0)):
            assert self.cache.revision >= revision

    # What befalls them.

    @rule()
    def bookmark(self) -> None:
        self.server.bookmark()

    @rule()
    def compact(self) -> None:
        self.server.compact()

    @rule(failure=st.sampled_from(range(len(FAILURES))), verb=VERBS)
    def fail(self, failure: int, verb: str) -> None:
        self.server.fail(FAILURES[failure](), verb=verb)

    @rule(how=st.sampled_from(["clean", "cut", "expired", "garbled", "half"]))
    def end_watches(self, how: str) -> None:
        for watch in self.server.watches:
            if how == "expired":
                watch.send("ERROR", {"code": 410, "reason": "Expired"})
            elif how == "garbled":
                watch.raw(b'{"type":"MODIFIED","object":[]}\n')
            elif how == "half" and self.server.log:
                _, kind, thing = self.server.log[-1]
                watch.raw(encode({"type": kind, "object": thing})[:-3])
        self.server.end_watches(Unavailable("watch", "cut") if how == "cut" else None)

    @rule()
    def lose_watches(self) -> None:
        """The connections are dead, and nobody knows."""
        for watch in self.server.watches:
            watch.over = True

    @precondition(lambda self: self.server.log)
    @rule(at=st.integers(0, 100))
    def replay_event(self, at: int) -> None:
        _, kind, thing = self.server.log[at % len(self.server.log)]
        for watch in self.server.watches:
            watch.send(kind, thing)

    @rule(hangs=st.booleans())
    def hang(self, hangs: bool) -> None:
        self.server.hanging = hangs

    # What holds.

    @invariant()
    def nothing_goes_backwards(self) -> None:
        assert self.faults == []
        assert not self.following.done()

    @invariant()
    def who_listens_has_the_same(self) -> None:
        assert {each.metadata.key: each for each in self.cache} == self.replayed

    @invariant()
    def indexes_hold_the_same(self) -> None:
        for digit in "123456789":
            under = {each.metadata.key for each in self.cache.by_index("initial", digit)}
            held = {each.metadata.key for each in self.cache if each.metadata.uid[-1] == digit}
            assert under == held

    def teardown(self) -> None:
        self.server.faults.clear()
        self.server.hanging = False
        self.runner.run(self.clock.sleep(500.0))
        try:
            held = {each.metadata.key: int(each.metadata.resource_version) for each in self.cache}
            assert held == _revisions(self.server)
            assert self.runner.run(self.cache.verify_current(within=10.0))
            assert self.cache.problem == ""
            self.nothing_goes_backwards()
            self.who_listens_has_the_same()
        finally:
            self.following.cancel()
            self.runner.run(asyncio.wait({self.following}))
            assert self.server.watches == []
            self.runner.close()


def _revisions(server: FakeApiServer) -> dict[str, int]:
    things: dict[str, Any] = server.objects
    return {name: int(thing["metadata"]["resourceVersion"]) for name, thing in things.items()}


CacheMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCache = CacheMachine.TestCase
