"""One column: change the driver, let people act, and measure until the fleet is upgraded."""

import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.incumbent.audit_log import ColumnLog, column_log, read_log
from bench.incumbent.ground import Ground, Stuck
from bench.incumbent.plan import HORIZON, Stage, begin
from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.kube.views import Node


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one column; seconds are those of the run, not scaled back."""

    makespan: float | None
    """Until every node but the bad one is upgraded; None: not within the horizon."""
    idle: float
    """Cordoned seconds per ordinary node, beyond those that the machine itself needs."""
    requests: Mapping[str, Counter[str]]
    """By verb, for each group of accounts."""
    cpu: Mapping[str, float]
    """CPU seconds until then, by process."""
    done: int
    failed_after: float | None
    """From the bad node's cordon to the report that it failed."""
    harmed: int
    cordoned: int
    """Nodes that were cordoned at once, at most."""
    cordons: int
    """Cordons of people."""
    kept: int
    load: float
    """The machine's load average, over five minutes, at the end."""


class Measurement:
    """One upgrade while it runs."""

    def __init__(self, ground: Ground, stage: Stage, *, pids: Mapping[str, int]) -> None:
        self._ground = ground
        self._stage = stage
        self._plan = ground.plan
        self._pids = pids
        self._cordoned: list[str] = []
        self._end: float | None = None
        self._cpu_at_start: dict[str, float] = {}
        self._cpu: dict[str, float] = {}

    async def run(
        self, change: Callable[[], Awaitable[None]], *, accounts: Mapping[str, Sequence[str]]
    ) -> Column:
        """`change` asks for the new driver; `accounts` groups users whose requests count."""
        ground = self._ground
        await ground.wait_for_workloads()
        if self._stage.troubled:
            await self._cordon(self._plan.cordoned_before)
        begin(self._stage, ground.up.paths.folder)
        log = ground.plane.audit_log
        offset, since = log.stat().st_size, time.time()
        self._cpu_at_start = self._cpu_seconds()
        await change()
        try:
            await ground.until(
                "the bad node is reported as failed, and the others are upgraded",
                self._observe,
                within=HORIZON / self._plan.factor,
            )
        except Stuck as stuck:
            print(f"  {stuck}")
            self._note_end()
        nodes = await ground.nodes()
        lines = read_log(log, offset=offset, since=since)
        found = column_log(lines, until=self._end or time.time())
        return self._column(found, nodes, since, accounts)

    async def _observe(self) -> bool:
        nodes = await self._ground.nodes()
        if len(self._cordoned) == 1:
            await self._cordon_waiting(nodes)
        if self._end is None and all(
            self._is_done(node) for name, node in nodes.items() if name != self._bad_node
        ):
            self._end = time.time()
            self._note_end()
        if self._end is None or not self._stage.troubled:
            return self._end is not None
        bad = nodes[self._bad_node].metadata
        return bad.labels.get(STATE_LABEL) == UpgradeState.UPGRADE_FAILED

    @property
    def _bad_node(self) -> str:
        return self._plan.bad_node if self._stage.troubled else ""

    def _note_end(self) -> None:
        if not self._cpu:
            start = self._cpu_at_start
            self._cpu = {name: now - start[name] for name, now in self._cpu_seconds().items()}

    async def _cordon_waiting(self, nodes: Mapping[str, Node]) -> None:
        """Once an upgrade has begun, a person cordons a node that still waits for its turn."""
        cordoned = {name for name, node in nodes.items() if node.spec.unschedulable}
        if cordoned <= {*self._cordoned}:
            return
        waiting = [
            name for name in self._plan.names if name not in cordoned and name != self._bad_node
        ]
        await self._cordon(waiting[-1])

    async def _cordon(self, node: str) -> None:
        await self._ground.cordon(node)
        self._cordoned.append(node)

    def _is_done(self, node: Node) -> bool:
        is_done = node.metadata.labels.get(STATE_LABEL) == UpgradeState.UPGRADE_DONE
        return is_done and self._ground.version(node.metadata.name) == self._stage.target

    def _column(
        self,
        log: ColumnLog,
        nodes: Mapping[str, Node],
        since: float,
        accounts: Mapping[str, Sequence[str]],
    ) -> Column:
        plan, end = self._plan, self._end or time.time()
        world = plan.world(self._ground.up.paths.folder)
        special = {*self._cordoned, self._bad_node}
        ordinary = [name for name in plan.names if name not in special and name in log.nodes]
        idle = [
            log.cordoned_seconds(name, until=end)
            - world.busy_seconds(name, works=plan.is_busy(name))
            for name in ordinary
        ]
        begun = log.first_cordon(self._bad_node)
        failed = log.first(self._bad_node, UpgradeState.UPGRADE_FAILED)
        return Column(
            makespan=None if self._end is None else self._end - since,
            idle=sum(idle) / max(1, len(idle)),
            requests={group: log.of(users) for group, users in accounts.items()},
            cpu=self._cpu,
            done=sum(map(self._is_done, nodes.values())),
            failed_after=None if failed is None or begun is None else failed - begun,
            harmed=sum(
                self._ground.version(name) not in (self._stage.before, self._stage.target)
                for name in plan.names
            ),
            cordoned=log.most_cordoned(),
            cordons=len(self._cordoned),
            kept=sum(nodes[name].spec.unschedulable for name in self._cordoned),
            load=os.getloadavg()[1],
        )

    def _cpu_seconds(self) -> dict[str, float]:
        return {name: _cpu_of(pid) for name, pid in self._pids.items()}


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
