"""A pool of the fleet and its rollout, as its Rollout and the scheduler show it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.contracts import rollout
from libs.contracts.queries import PoolStatus, StatusAnswer
from libs.contracts.rollout import (
    Brake,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
    braked,
    release_command,
)
from libs.fleet.names import name_versions, version_name
from libs.kube import views
from libs.kube.authors import Author, brake_author
from libs.kube.resources import Resource


class Rollout(views.Object, frozen=True, kw_only=True):
    spec: rollout.RolloutSpec = rollout.RolloutSpec()
    status: rollout.RolloutStatus = rollout.RolloutStatus()


ROLLOUTS: Final = Resource(
    group=rollout.GROUP,
    version=rollout.VERSION,
    plural=rollout.PLURAL,
    kind=rollout.KIND,
    namespaced=False,
    view=Rollout,
)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool and its rollout."""

    name: str
    version: str
    target: str = ""
    phase: str = ""
    because: str = ""
    """Why no node starts, or why it is in its phase."""
    brake: str = Brake.NONE.value
    brake_set: Author | None = None
    """None: there is no brake, or Kubernetes was not asked or does not record it."""
    halt_ended_by: str = ""
    """The command that ends its halt; empty: it is not halted, or Kubernetes was not asked."""
    counts: dict[str, int]
    """The pool's nodes by what they do; `limit` may be unavailable."""
    waits: dict[str, int] | None = None
    """Waiting nodes by wait code; None: the scheduler did not answer."""
    budget: str = ""
    """The limit that keeps nodes from starting, and the nodes that use it up, as the scheduler
    says."""
    without_gpus: int = 0
    """The number of nodes with a driver and a GPU that no container can have, as the scheduler
    says."""


def pool_of(
    metadata: views.Metadata, spec: RolloutSpec, status: RolloutStatus, versions: Mapping[str, str]
) -> Pool:
    """Return a pool as its Rollout shows it."""
    return Pool(
        name=metadata.name,
        version=version_name(status.target, versions),
        target=status.target,
        phase=status.phase.value,
        because=name_versions(status.because, versions),
        brake=spec.brake.value,
        brake_set=brake_author(metadata) if spec.brake is not Brake.NONE else None,
        halt_ended_by=ending_of_halt(metadata.name, status),
        counts=msgspec.structs.asdict(status.counts),
    )


def pool_from_scheduler(status: PoolStatus) -> Pool:
    """Return a pool as the scheduler shows it, where Kubernetes does not answer."""
    return Pool(
        name=status.pool,
        version=version_name(status.target, {}),
        target=status.target,
        phase=status.phase,
        because=status.because,
        brake=status.brake or Brake.NONE.value,
        counts=msgspec.structs.asdict(status.counts),
        waits=dict(status.waits),
        budget=name_versions(status.budget, {}),
        without_gpus=status.without_gpus,
    )


def with_waits(
    pools: Iterable[Pool], answer: StatusAnswer | None, versions: Mapping[str, str]
) -> tuple[Pool, ...]:
    """Add what the scheduler says: waits, and pools that have no Rollout yet."""
    if answer is None:
        return tuple(pools)
    told = {each.pool: each for each in answer.pools}
    known = [
        msgspec.structs.replace(
            pool,
            waits=dict(told[pool.name].waits),
            because=pool.because or told[pool.name].because,
            budget=name_versions(told[pool.name].budget, versions),
            without_gpus=told[pool.name].without_gpus,
        )
        if pool.name in told
        else pool
        for pool in pools
    ]
    names = {pool.name for pool in known}
    return (*known, *(pool_from_scheduler(each) for each in answer.pools if each.pool not in names))


def is_told_by_brake(pool: Pool) -> bool:
    """Whether a pool's reason is its brake, with who set it."""
    brake, author = Brake(pool.brake), pool.brake_set
    if author is None:
        return pool.because == braked(pool.name, brake)
    return pool.because == braked(pool.name, brake, by=author.name, reason=author.reason)


def ending_of_halt(pool: str, status: RolloutStatus) -> str:
    """Return the command that accepts the failures of a halted driver; empty: it is not halted."""
    record = status.targets.get(status.target)
    if status.phase is not RolloutPhase.HALTED or record is None or not status.version:
        return ""
    return release_command(pool, status.version, len(record.harmed))


def resume_command(pool: str) -> str:
    return f"sluice upgrade resume {pool}"
