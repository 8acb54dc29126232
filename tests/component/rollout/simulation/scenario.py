"""What a seed stands for: pools, machines, what befalls them and when. Data, so that it can shrink.

The same seed is the same scenario everywhere.
"""

from random import Random

import msgspec

from libs.contracts.reports import Finding
from libs.forecast.stage import EffectFault, StageNodeSpec, Tenant
from libs.rollout.views.machine import EvictionExemption
from libs.rollout.views.pool import PoolView
from tests.component.rollout.simulation.disturbances import Disturbance, random_disturbance
from tests.component.rollout.simulation.policies import (
    TARGETS,
    VARIANTS,
    drawn_pools,
    failing_drivers,
    proven_before,
)

KERNEL = "6.8"
START = 1_000_000.0
SIZES = (1, 1, 2, 3, 4, 6, 8)
"""How many nodes a fleet has."""
SMALL = 1_000_000
"""From this seed on fleets are small: many are played in the time of a few large ones."""
SMALL_SIZES = (1, 1, 2)
ACTS_UNTIL = 5400.0
"""Seconds from the start during which things befall the fleet."""


class Strike(msgspec.Struct, frozen=True):
    """One fault of effects: the so-many-th decision about this node or pool met it."""

    name: str
    number: int
    fate: EffectFault


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How often effects go wrong, each in its way."""

    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    half: float = 0.0
    unanswered: float = 0.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One story before it is told."""

    seed: int
    pools: tuple[PoolView, ...]
    nodes: tuple[StageNodeSpec, ...]
    acts: tuple[Disturbance, ...] = ()
    rates: Rates = Rates()
    strikes: tuple[Strike, ...] | None = None
    """None: as the rates say; else exactly these."""
    think: float = 0.1
    """Seconds between what happens and the decision about it."""
    zombie: float = 0.0
    """For so long a deposed leader goes on deciding, on what it had seen last."""
    bad: frozenset[str] = frozenset()
    """Driver labels that never load."""
    unsound: frozenset[str] = frozenset()
    """Driver labels that load and never pass."""
    rough: bool = False
    """Things fail by themselves more often."""


def scenario(seed: int) -> Scenario:
    """What this seed stands for."""
    random = Random(seed)
    pools = drawn_pools(random)
    nodes = tuple(
        _node(random, f"n{number}", random.choice(pools).key)
        for number in range(1, random.choice(SMALL_SIZES if seed >= SMALL else SIZES) + 1)
    )
    calm = random.random() < 0.25
    bad, unsound = failing_drivers(random, pools)
    return Scenario(
        seed=seed,
        pools=tuple(proven_before(pool, nodes) for pool in pools),
        nodes=nodes,
        acts=() if calm else _acts(random, pools, nodes),
        rates=Rates() if calm else _rates(random),
        think=random.choice((0.05, 0.1, 1.0)),
        zombie=0.0 if calm else random.choice((0.0, 5.0, 30.0)),
        bad=bad,
        unsound=unsound,
        rough=not calm and random.random() < 0.4,
    )


# Machines.


def _node(random: Random, name: str, pool: str) -> StageNodeSpec:
    return StageNodeSpec(
        name=name,
        pool=pool,
        variant=random.choices(VARIANTS, weights=(5, 1))[0],
        kernel=KERNEL,
        target="" if random.random() < 0.15 else TARGETS[0],
        tenants=tuple(_tenant(random, index) for index in range(random.choice((0, 1, 1, 2, 3)))),
        cordoned_by="kubectl-cordon" if random.random() < 0.08 else "",
        obstacles=(
            (Finding(code="nouveau", message="nouveau is loaded", remedy="remove it"),)
            if random.random() < 0.04
            else ()
        ),
        host_processes=1 if random.random() < 0.03 else 0,
        upgrade_last=random.random() < 0.1,
    )


def _tenant(random: Random, index: int) -> Tenant:
    kind = random.random()
    if kind < 0.12:
        return Tenant(name=f"dcgm-{index}", exemption=EvictionExemption.OPERAND, gpus=1)
    job = kind < 0.45
    guarded = random.choices((0.0, 20.0, 400.0, None), weights=(12, 3, 1, 1))[0]
    return Tenant(
        name=f"{'job' if job else 'service'}-{index}",
        gpus=random.choice((0, 1, 4)),
        job=job,
        remaining=random.choice((30.0, 600.0, 4000.0, None)) if job else None,
        eviction_refused_for=guarded,
        stop_seconds=random.choices((2.0, 30.0, None), weights=(16, 4, 1))[0],
        is_recreated=not job,
        exemption=random.choices(
            (EvictionExemption.NONE, EvictionExemption.DRAIN_SKIP), weights=(15, 1)
        )[0],
        bare=random.random() < 0.05,
        empty_dir=random.random() < 0.05,
    )


# What befalls them.


def _rates(random: Random) -> Rates:
    if random.random() < 0.4:
        return Rates()
    return Rates(
        **{
            name: random.choice((0.0, 0.0, 0.02, 0.1))
            for name in ("lost", "late", "twice", "half", "unanswered")
        }
    )


def _acts(
    random: Random, pools: tuple[PoolView, ...], nodes: tuple[StageNodeSpec, ...]
) -> tuple[Disturbance, ...]:
    number = random.choice((0, 1, 1, 2, 3, 5, 8))
    names = [node.name for node in nodes]
    keys = [pool.key for pool in pools]
    made = [
        random_disturbance(
            random, names, keys, round(random.uniform(0.0, ACTS_UNTIL) ** _early(random), 2)
        )
        for _ in range(number)
    ]
    return tuple(sorted(made, key=lambda act: act.at))


def _early(random: Random) -> float:
    """Most of what is interesting happens within minutes."""
    return random.choice((0.6, 0.75, 1.0))
