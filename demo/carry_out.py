"""Carry out the actions of the scenario, as people would with kubectl and `sluice`."""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from demo.actions import (
    Action,
    AnnounceRelease,
    AskPlans,
    Cordon,
    CreateJob,
    CreateService,
    FinishJob,
    Release,
    RepairDriver,
    Retry,
    Scale,
    SetVersion,
)
from demo.admin import DemoAdmin
from demo.environment import DemoEnvironment
from demo.observed import Observed
from demo.scenario import failed_nodes
from demo.screen import DemoScreen
from libs.contracts.queries import PlanQuery
from libs.contracts.rollout import RolloutStatus, release_command
from libs.ctl.answers import PlanView
from libs.ctl.brakes import Signature, release
from libs.ctl.collect.plan import gather_plan
from libs.ctl.edits import Edit
from libs.ctl.failures import Failure
from libs.ctl.options import Access
from libs.ctl.text import plural
from libs.ctl.views.plan import obstacles
from libs.rollout.plan_time import takes

if TYPE_CHECKING:
    from demo.people import Setting

ADMINISTRATOR: Final = "administrator"
_USER: Final = "user"
_RELEASED_BECAUSE: Final = "its image is repaired"
_RETRY_SECONDS: Final = 1.0
_PLAN_SECONDS: Final = 60.0
"""Seconds after which the scenario goes on without a plan.

A plan costs a second of CPU time, and its process gives way to all others: on a machine that is
busy with other work it takes most of a minute.
"""


class Tell(Protocol):
    """Print what somebody does."""

    def __call__(self, action: str, who: str = ADMINISTRATOR) -> None: ...


class ScenarioActions:
    def __init__(
        self,
        up: DemoEnvironment,
        *,
        admin: DemoAdmin,
        access: Access,
        screen: DemoScreen,
        tell: Tell,
    ) -> None:
        self._paths = up.paths
        self._speed = up.speed
        self._admin = admin
        self._access = access
        self._screen = screen
        self._tell = tell
        self.unseen: dict[Setting, str] = {}
        """What the demo has set and the observer has not seen yet."""
        self._bad: set[tuple[str, str]] = set()
        """Pools and versions whose driver label, as soon as it is known, is to be marked as bad."""

    async def carry_out(self, action: Action, seen: Observed) -> None:
        match action:
            case Cordon() | CreateService() | CreateJob() | FinishJob() | Scale():
                await self._use_the_fleet(action, seen)
            case AskPlans(pools, version):
                for pool in pools:
                    await self._ask_plan(pool.key, version)
            case SetVersion(pool, version):
                before = seen.pools[pool.name].wanted
                self._tell(f"kubectl patch nvidiadriver {pool.name}: {before} -> {version}")
                if action.is_bad:
                    self._bad.add((pool.name, version))
                self.unseen["version", pool.name] = version
                await self._admin.set_pool_version(pool, version)
            case RepairDriver(version):
                self._tell(f"repairs the image of driver {version}: it loads now")
                await asyncio.to_thread(self._paths.bad_drivers.unlink, missing_ok=True)
            case AnnounceRelease(pool, after):
                seconds = f"{after / self._speed:.0f} s"
                command = release_command(pool.key, seen.pools[pool.name].status.version)
                self._tell(f"releases the halt in {seconds}, unless you do: {command}")
            case Release(pool):
                await self._release(pool.name, pool.key, seen)
            case Retry(pool):
                for node in failed_nodes(seen, pool):
                    self._tell(f"sluice upgrade retry {node}")
                    await self._admin.retry_node(node)

    async def mark_bad_drivers(self, seen: Observed) -> None:
        """Let drivers that are to be bad fail, once their labels are known."""
        for key in [key for key in self._bad if key in seen.drivers]:
            self._bad.discard(key)
            await asyncio.to_thread(self._paths.bad_drivers.write_text, seen.drivers[key])

    async def _use_the_fleet(
        self, action: Cordon | CreateService | CreateJob | FinishJob | Scale, seen: Observed
    ) -> None:
        admin = self._admin
        match action:
            case Cordon(node):
                self._tell(f"kubectl cordon {node}, to look at it later", "person")
                await admin.cordon(node)
            case CreateService(name, pool, gpus, has_budget):
                budget = (
                    ", and a PodDisruptionBudget that keeps one pod of it" if has_budget else ""
                )
                self._tell(f"creates service {name} with {gpus} GPUs{budget}", _USER)
                if has_budget:
                    await admin.create_budget(name)
                await admin.create_service(name, pool.selector, gpus=gpus)
            case CreateJob(name, pool, gpus):
                self._tell(f"creates job {name} with {gpus} GPUs, which must finish", _USER)
                await admin.create_job(name, pool.selector, gpus=gpus)
            case FinishJob(name):
                for node in seen.nodes_of(name):
                    await asyncio.to_thread(self._paths.finished_jobs(node).write_text, name)
            case Scale(service, replicas):
                self._tell(f"kubectl scale {service} to {replicas} pods", _USER)
                await admin.scale_service(service, replicas)

    async def _release(self, name: str, pool: str, seen: Observed) -> None:
        status = seen.pools[name].status
        failures = len(status.targets[status.target].failed)
        command = release_command(pool, status.version, failures)
        self._tell(f"{command} --reason '{_RELEASED_BECAUSE}'")
        edit = release_edit(pool, status, failures)
        await self._admin.write_rollout(pool, edit.patch)

    async def _ask_plan(self, pool: str, version: str) -> None:
        """Ask for a plan, which is set beside what happened at the end."""
        self._screen.busy(f"computing the plan of {pool}")
        asked = f"sluice plan {pool} --version {version}"
        query = PlanQuery(pool=pool, driver_version=version)
        problem = "this machine is busy"
        try:
            async with asyncio.timeout(_PLAN_SECONDS):
                while True:
                    try:
                        found = await gather_plan(self._access, query, tell=self._screen.busy)
                        break
                    except Failure as failure:  # perhaps somebody else's plan is being computed
                        problem = str(failure)
                    await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            self._tell(f"{asked}: not answered within {_PLAN_SECONDS:g} s: {problem}")
            return
        self._tell(f"{asked}: {planned_text(found)}")


def release_edit(pool: str, status: RolloutStatus, failures: int) -> Edit:
    """Return what the administrator writes to end a halt, signed as `sluice` does."""
    by = Signature(user=ADMINISTRATOR, reason=_RELEASED_BECAUSE)
    return release(pool, status, status.target, status.version, failures, by=by)


def _basis(measured_nodes: int) -> str:
    """Return where the durations of a plan come from."""
    if measured_nodes:
        return f"durations as {plural(measured_nodes, 'node')} of the pool took before"
    return "durations are assumed, as too few nodes of the pool were measured"


def planned_text(found: object) -> str:
    """Return how long a plan takes, or why that is unknown."""
    if not isinstance(found, PlanView):
        return "the end is unknown"
    plan = found.plan
    if plan.makespan_p50 is not None:
        return f"{takes(plan)}; {_basis(plan.measured_nodes)}"
    obstacle = next((f"{name}: {text}" for name, text in obstacles(found, most=3)), "")
    return obstacle or " ".join(found.plan.remarks[:1])
