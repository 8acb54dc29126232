"""Keep the page's board current: what is followed, plans of the scheduler, and moves of nodes.

Changes only mark nodes; a round twice a second computes each of them once.
"""

import asyncio
from typing import Final

from libs.contracts.events import Event, StepEvent
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.queries import PlanQuery, QueryVerb, StatusAnswer, StatusQuery
from libs.contracts.rollout import RolloutStatus
from libs.ctl.bus import Scheduler
from libs.ctl.cluster import Cluster
from libs.ctl.failures import Failure
from libs.ctl.follow.events import EventSource
from libs.ctl.follow.kubernetes import KubernetesSource
from libs.ctl.follow.objects import FollowedObject
from libs.ctl.options import Access
from libs.ctl.text import printable
from libs.ctl.web import history, model
from libs.ctl.web.board import Board
from libs.ctl.web.history import Move, Planned
from libs.fleet.pools import with_waits
from libs.fleet.records import record_of
from libs.fleet.state import FleetState
from libs.fleet.status import EventLine, Source, scheduler_source
from libs.runtime.env import Env

ROUND_SECONDS: Final = 0.5
VERSIONS_SECONDS: Final = 30.0
STATUS_SECONDS: Final = 5.0
PLAN_SECONDS: Final = 600.0
"""A plan is made again this often: what has not started is drawn as it is expected now."""
EVENTS_OF_NODE: Final = 12
"""Events that are kept of each node; `sluice events --node` has all."""


class PageFeed:
    """Keeps the board while `run` runs; NATS may be away."""

    def __init__(self, access: Access, cluster: Cluster, board: Board, *, env: Env) -> None:
        self._cluster = cluster
        self._board = board
        self._clock = env.clock
        self.state = FleetState()
        self.kubernetes = KubernetesSource(cluster, self.state, env=env, whole=True)
        self.kubernetes.nodes.cache.on_change(self._forget_deleted)
        self.events = EventSource(access, self, env=env, ask=self._ask)
        self._moved: set[str] = set()
        """Nodes of which a move or a plan is new."""
        self._moves: dict[str, tuple[str, Move]] = {}
        """By node, with the uid of the Node that moved."""
        self._happened: dict[str, tuple[EventLine, ...]] = {}
        self._plans: dict[str, tuple[str, float, dict[str, Planned]]] = {}
        """By pool: the target, when it was planned, and start and end by node."""
        self._status: StatusAnswer | None = None
        self._status_problem = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.kubernetes.run())
            tasks.create_task(self.events.run())
            tasks.create_task(self._name_versions())
            tasks.create_task(self._rounds())

    @property
    def why_away(self) -> str:
        """Why the scheduler cannot be asked; empty if it can."""
        events = self.events
        return events.problem or ("" if events.scheduler is not None else "not connected yet")

    def sources(self) -> tuple[Source, ...]:
        """Return what each source gives, how old it is, and what it does not give, and why."""
        away, status = self.why_away, self._status
        waits = (
            Source(name="the scheduler", gives="waits")
            if status is None
            else scheduler_source(status, now=self._clock.now())
        )
        return (
            self.kubernetes.source(),
            Source(
                name=printable(waits.name),
                gives="waits and plans",
                age=waits.age,
                problem=away or self._status_problem,
                behind=waits.behind,
            ),
            Source(
                name="NATS",
                gives="events and the timeline's past",
                age=None if away else self.events.age,
                problem=away,
            ),
        )

    def happened(self, node: str) -> tuple[EventLine, ...]:
        """Return the last events of a node, the oldest first."""
        return self._happened.get(node, ())

    # Called by the source of events.

    def event_received(self, event: Event) -> None:
        """Show an event, and learn of a node's move or wait if the scheduler says so."""
        self.state.event_received(event)
        line = model.clean(EventLine.of(event, self.state.versions))
        self._board.add_event(line)
        if event.node:
            self._happened[event.node] = (*self.happened(event.node), line)[-EVENTS_OF_NODE:]
        if event.writer != Writer.SCHEDULER or not event.node:
            return
        try:
            body = event.open()
        except MalformedMessage:
            return
        if isinstance(body, StepEvent):
            move = history.advance(self._move(event.node, event.node_uid), body, event.at)
            if move is not None:
                self._moves[event.node] = (event.node_uid, move)
                self._moved.add(event.node)

    def events_begin(self) -> None:
        self.state.events_begin()

    def _move(self, node: str, uid: str) -> Move | None:
        of, move = self._moves.get(node, ("", None))
        return move if of in ("", uid) else None

    def _forget_deleted(self, old: FollowedObject | None, new: FollowedObject | None) -> None:
        if old is not None and new is None:
            for known in (self._moves, self._happened):
                known.pop(old.metadata.name, None)

    async def _name_versions(self) -> None:
        """Keep the versions of targets; those of earlier ones come from DaemonSets."""
        await self.kubernetes.rollouts.cache.wait_synced()
        while True:
            try:
                rollouts = tuple(self.kubernetes.rollouts)
                self.state.versions_found(await self._cluster.versions(rollouts))
            except Failure:
                pass  # those that were found before stay
            await self._clock.sleep(VERSIONS_SECONDS)

    async def _rounds(self) -> None:
        while True:
            self.compute()
            await self._clock.sleep(ROUND_SECONDS)

    def compute(self) -> None:
        """Compute what changed."""
        moved, self._moved = self._moved, set()
        for name in self.state.refresh() | moved:
            self._compute_node(name)
        pools = with_waits(self.state.pools(), self._status, self.state.versions)
        self._board.put_pools(tuple(map(model.clean, pools)))
        devices = self.kubernetes.devices
        if devices.is_changed:
            devices.is_changed = False
            self._board.put_gpus(model.gpus_of(devices.by_product, devices.sick.values()))

    def _compute_node(self, name: str) -> None:
        """Put a node on the map and on the timeline as it is now, or remove it from both.

        Its move is what events tell, or what Kubernetes alone shows where they are missing; one of
        an earlier Node of its name counts no more.
        """
        shown, node, metadata = printable(name), self.state.node(name), self.state.metadata(name)
        if node is None or metadata is None:
            self._board.put_node(shown, None)
            self._board.put_bar(shown, None)
            return
        self._board.put_node(shown, model.row_of(node))
        uid = metadata.uid
        move = self._move(name, uid)
        pool = node.pool or (move.pool if move else "")
        rollouts = self.state.rollouts
        status = rollouts[pool].status if pool in rollouts else RolloutStatus()
        seen = history.move_from_kubernetes(status, uid, record_of(metadata))
        move = history.best(move, seen, target=status.target)
        planned_for, _, plan = self._plans.get(pool, ("", 0.0, {}))
        planned = plan.get(name) if planned_for == status.target else None
        bar = history.bar_of(name, pool, move, planned, self.state.versions)
        self._board.put_bar(shown, bar)

    async def _ask(self, scheduler: Scheduler) -> None:
        """Ask for what no event says, for as long as NATS is connected."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask_status(scheduler))
            tasks.create_task(self._ask_plans(scheduler))

    async def _ask_status(self, scheduler: Scheduler) -> None:
        while True:
            try:
                self._status = await scheduler.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
                self._status_problem = ""
            except Failure as failure:
                self._status_problem = printable(str(failure))
            await self._clock.sleep(STATUS_SECONDS)

    async def _ask_plans(self, scheduler: Scheduler) -> None:
        while True:
            for pool, target in self._pools_to_plan().items():
                planned_for, at, _ = self._plans.get(pool, ("", 0.0, {}))
                if planned_for != target or self._clock.monotonic() - at >= PLAN_SECONDS:
                    await self._ask_plan(scheduler, pool, target)
            await self._clock.sleep(STATUS_SECONDS)

    def _pools_to_plan(self) -> dict[str, str]:
        """Return the target of each pool whose rollout is under way."""
        return {
            name: each.status.target
            for name, each in self.state.rollouts.items()
            if each.status.target and each.status.phase.value in ("Proving", "Proven")
        }

    async def _ask_plan(self, scheduler: Scheduler, pool: str, target: str) -> None:
        """Plan what has not started; what has keeps the plan that was made for it before."""
        planned_for, _, nodes = self._plans.get(pool, ("", 0.0, {}))
        kept = nodes if planned_for == target else {}
        try:
            plan = await scheduler.plan(PlanQuery(pool=pool))
        except Failure as failure:
            self._status_problem = f"no plan of {printable(pool)}: {printable(str(failure))}"
            plan = None
        if plan is not None and plan.target == target:
            bars = self._board.bars.items()
            started = {name for name, bar in bars if bar.pool == pool and bar.has_begun}
            new = history.planned_times(plan, at=self._clock.now(), started=started)
            kept = {name: times for name, times in kept.items() if name in started} | new
        self._plans[pool] = (target, self._clock.monotonic(), kept)
        self._moved |= set(kept) | set(nodes)
