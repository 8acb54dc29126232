"""A cluster, those who live in it, those who follow it, and a storm; then calm, and a judgement."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, PODS
from libs.kube.transport import Transport
from libs.runtime.tasks import Tasks
from libs.testing.env import make_env
from libs.testing.simulation import Sim
from tests.component.kube import widgets
from tests.component.kube.widgets import WIDGETS
from tests.component.kube_storms.bystanders import BYSTANDER_NAMESPACES, Bystanders
from tests.component.kube_storms.cache_checker import CacheChecker
from tests.component.kube_storms.caching_writer import CachingWriter, commits, false_results
from tests.component.kube_storms.faults import READER, SLOW_READER, WRITER, FaultInjector
from tests.component.kube_storms.state_history import (
    OBSERVER,
    CacheSelection,
    InspectableServer,
    StateHistory,
    listed,
)

if TYPE_CHECKING:
    from libs.runtime.fatal import Fatal

STORMS = (20.0, 40.0, 80.0)
"""Seconds that one may last."""

CALM = 75.0
"""Seconds after the last fault in which every cache must be right.

At worst a watch is being opened that hangs, which is given up after 10 s; a pause of up to 30 s
follows; the revision to resume from is forgotten by then; another pause of up to 30 s; a list.
"""

QUIET = 600.0
"""Seconds after that in which nobody has a reason to write."""


def parts() -> list[CacheSelection]:
    """What is followed by one who only reads."""
    return [
        CacheSelection(name="nodes", resource=NODES),
        CacheSelection(
            name="nodes of pool a", resource=NODES, labels="pool=a", predicate=_in_pool_a
        ),
        CacheSelection(name="pods", resource=PODS),
        CacheSelection(name="blue pods", resource=PODS, namespace="blue"),
        CacheSelection(
            name="pods on n1",
            resource=PODS,
            fields="spec.nodeName=n1",
            predicate=lambda view: view.spec.node_name == "n1",
        ),
        CacheSelection(
            name="green widgets of no pool",
            resource=WIDGETS,
            namespace="green",
            labels="!pool",
            predicate=lambda view: "pool" not in view.metadata.labels,
        ),
        CacheSelection(name="widgets", resource=WIDGETS),
    ]


def _in_pool_a(view: Any) -> bool:
    return view.metadata.labels.get("pool") == "a"


WrapTransport = Callable[[str, Transport], Transport]


class Storm:
    """One seed's."""

    def __init__(self, sim: Sim, *, wrap_transport: WrapTransport = lambda _, wire: wire) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.random = sim.random_for("storm")
        self._dressed = wrap_transport
        self.truth = StateHistory(sim.clock)
        self.server = InspectableServer(
            clock=sim.clock,
            ids=sim.ids,
            random=sim.random_for("server"),
            journal=self.truth,
            rules={widgets.IMMUTABLE: widgets.pool_stays},
            history_changes=self.random.choice([15, 60, 10_000]),
        )
        self.truth.attach(self.server)
        self.bystanders = Bystanders(self.kube("alice"), self.truth, sim.random_for("people"))
        self.followers = [self.follow(READER, part) for part in parts()]
        nodes = self.follow(WRITER, CacheSelection(name="the servant's nodes", resource=NODES))
        pods = self.follow(
            WRITER,
            CacheSelection(
                name="the servant's pods", resource=PODS, labels="pool=a", predicate=_in_pool_a
            ),
        )
        self.followers += [nodes, pods]
        self.slow_checker = self.follow(
            SLOW_READER, CacheSelection(name="the snail's pods", resource=PODS)
        )
        self.followers.append(self.slow_checker)
        self.writer = CachingWriter(
            self.kube(WRITER), nodes=nodes.cache, pods=pods.cache, random=sim.random_for("servant")
        )
        self.faults = FaultInjector(
            self.server,
            hurry=lambda: self.bystanders.write_burst(40),
            env=sim.env("weather"),
        )
        self.violations: list[str] = []
        self.failed: list[Fatal] = []
        self.proven = 0

    def kube(self, user: str, *, manager: str = "") -> Kube:
        """A client of that user."""
        wire = self._dressed(user, self.server.transport(user=user))
        return Kube(wire, manager=manager or user, clock=self.clock)

    def follow(self, user: str, part: CacheSelection) -> CacheChecker:
        """One more cache."""
        cache = Cache(
            self.kube(user),
            part.resource,
            env=make_env(clock=self.clock, random=self.sim.random_for(part.name)),
            namespace=part.namespace,
            labels=part.labels,
            fields=part.fields,
        )
        return CacheChecker(part, cache, self.truth)

    async def run(self, *, calm: float = CALM, **company: Coroutine[Any, Any, None]) -> None:
        """All of it, with others who run until the end; what is wrong then is in `wrong`."""
        await self._found()
        following = Tasks("following", failed=self.failed.append)
        busy = Tasks("busy", failed=self.failed.append)
        try:
            for follower in self.followers:
                following.forever(follower.part.name, follower.cache.run())
            for name, others in company.items():
                following.forever(name, others)
            self._set_to_work(busy)
            await self.faults.run(self.random.choice(STORMS))
            await busy.close()
            await self.clock.sleep(calm)
            await self._judge()
            written = len(self.truth)
            await self.clock.sleep(QUIET)
            if len(self.truth) != written:
                self.violations.append(f"{len(self.truth) - written} writes when nothing changed")
        finally:
            await busy.close()
            await following.close()
        if self.server.open_watches:
            self.violations.append(f"{self.server.open_watches} watches are open that nobody reads")
        self.violations += map(str, self.failed)

    async def _found(self) -> None:
        kube = self.kube(OBSERVER)
        await kube.request("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), body=widgets.definition())
        for place in BYSTANDER_NAMESPACES:
            await kube.create(NAMESPACES, {"metadata": {"name": place}})
        await self.bystanders.create_initial_objects()

    def _set_to_work(self, busy: Tasks) -> None:
        busy.forever("people", self._again(self.bystanders.write_once, pause=0.4))
        for number in range(2):
            busy.forever(f"servant {number}", self._again(self.writer.write_once, pause=0.6))
            busy.forever(f"probe {number}", self._again(self._probe, pause=2.0))
        busy.forever("ages", self._again(self._look_at_ages, pause=0.5))

    async def _again(self, act: Callable[[], Awaitable[None]], *, pause: float) -> None:
        while True:
            await self.clock.sleep(self.random.uniform(0.0, 2.0 * pause))
            await act()

    async def _probe(self) -> None:
        """What was written before it was asked for must be there when it says so."""
        follower = self.random.choice(self.followers)
        asked = self.server.revision
        if await follower.cache.verify_current(within=self.random.uniform(0.2, 8.0)):
            self.proven += 1
            missing = follower.missing(revision=asked)
            self.violations += [
                f"a probe says that all is there, but not {each}" for each in missing
            ]

    async def _look_at_ages(self) -> None:
        now = self.clock.monotonic()
        for follower in self.followers:
            if follower is self.slow_checker:
                continue  # he cannot know how long an event was under way
            self.violations += [
                f"{now:.3f}: it says to be {follower.cache.age:.3f} s old, but lacks {each}"
                for each in follower.overdue(now=now)
            ]

    async def _judge(self) -> None:
        """In the calm: every cache is what the server has, and what was told was true."""
        kube = self.kube(OBSERVER)
        for follower in self.followers:
            self.violations += follower.violations
            there, name = await listed(kube, follower.part), follower.part.name
            self.violations += [f"{name}: {each}" for each in differences(follower.held, there)]
            told = differences(follower.replayed, there)
            self.violations += [f"{name}, as it was told: {each}" for each in told]
            shown = filter(follower.part.matches, self.truth.now(follower.part.resource))
            assert there == {view.metadata.key: view for view in shown}
            if not await follower.cache.verify_current(within=5.0):
                self.violations.append(f"{name}: cannot be proven: {follower.cache.problem}")
        committed = commits(list(self.truth.revisions), user=WRITER)
        self.violations += false_results(self.writer.attempts, committed)


def differences(held: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Where a copy is not as the server."""
    return [
        f"{key} is {_short(held.get(key))}, and on the server {_short(there.get(key))}"
        for key in sorted({*held, *there})
        if held.get(key) != there.get(key)
    ]


def _short(view: Any) -> str:
    return "not there" if view is None else f"of revision {view.metadata.resource_version}"
