"""What a seed stands for: pools, nodes, disturbances and their times, as data that can shrink.

A seed is the same scenario on every machine.
"""

from random import Random

import msgspec

from libs.contracts.reports import Finding
from libs.rollout.views.machine import EvictionExemption
from libs.rollout.views.pool import PoolView
from libs.testing.stage import StageNodeSpec, Tenant
from tests.component.rollout.simulation.disturbances import (
    Disturbance,
    random_disturbance,
    random_gpu_faults,
    random_leases,
    random_mig_acts,
    random_taint_acts,
    random_unseen_end,
)
from tests.component.rollout.simulation.effect_faults import EffectFaultRates, NumberedFault
from tests.component.rollout.simulation.policies import (
    FROM_TEMPLATE,
    OTHERS_TAINT,
    TARGETS,
    VARIANTS,
    proven_before,
    random_failing_drivers,
    random_pools,
    with_images,
    with_startup_taint,
)

KERNEL = "6.8"
START = 1_000_000.0
FLEET_SIZES = (1, 1, 2, 3, 4, 6, 8)
SMALL = 1_000_000
"""Seeds from here on have small fleets: many of them run in the time of a few large ones."""
MIG = 2_000_000
"""In seeds from here on, which are small too, people also divide the GPUs."""
GPUS = 3_000_000
"""In seeds from here on, GPUs fail too."""
IMAGES = 4_000_000
"""In seeds from here on, images are brought before nodes are drained, and some cannot be pulled."""
LEASES = 5_000_000
"""In seeds from here to `TAINTS`, people take the leases of nodes and return them."""
TAINTS = 6_000_000
"""In seeds from here on, new nodes come with a startup taint, and people taint nodes too."""
SMALL_FLEET_SIZES = (1, 1, 2)
DISTURBED_SECONDS = 5400.0
"""Seconds from the start within which disturbances begin."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    pools: tuple[PoolView, ...]
    nodes: tuple[StageNodeSpec, ...]
    disturbances: tuple[Disturbance, ...] = ()
    fault_rates: EffectFaultRates = EffectFaultRates()
    effect_faults: tuple[NumberedFault, ...] | None = None
    """Exactly these faults of effects; None: as `fault_rates` draws them."""
    decision_delay: float = 0.1
    """Seconds between a change and the decision about it."""
    deposed_seconds: float = 0.0
    """Seconds for which a deposed leader goes on deciding, on the last state that it saw."""
    never_loads: frozenset[str] = frozenset()
    """Labels of drivers that never load."""
    never_validates: frozenset[str] = frozenset()
    """Labels of drivers that load and never pass validation."""
    failure_prone: bool = False
    """Machines, jobs and drivers fail more often."""
    missing_images: float = 0.0
    """The share of images that cannot be pulled to a node."""


def scenario(seed: int) -> Scenario:
    """Return the scenario that this seed stands for."""
    random = Random(seed)
    pools = random_pools(random)
    if seed >= IMAGES:
        pools = tuple(with_images(pool) for pool in pools)
    nodes = tuple(
        _random_node(random, f"n{number}", random.choice(pools).key)
        for number in range(
            1, random.choice(SMALL_FLEET_SIZES if seed >= SMALL else FLEET_SIZES) + 1
        )
    )
    if seed >= TAINTS:
        pools = tuple(map(with_startup_taint, pools))
        nodes = tuple(map(_with_taints, nodes))
    calm = random.random() < 0.25
    names = [node.name for node in nodes]
    added = random_mig_acts(random, names, 3) if seed >= MIG else []
    if seed >= GPUS:
        added = random_gpu_faults(random, names, 3) + added[: random.choice((0, 0, 1))]
    if LEASES <= seed < TAINTS:
        added += random_leases(random, names, 3)
    if seed >= TAINTS:
        added = random_taint_acts(random, names, random.choice((0, 1, 2)))
    never_loads, never_validates = random_failing_drivers(random, pools)
    return Scenario(
        seed=seed,
        pools=tuple(proven_before(pool, nodes) for pool in pools),
        nodes=nodes,
        disturbances=tuple(sorted(added, key=lambda each: each.at))
        if calm
        else _with_added(
            added, _with_unseen_ends(seed, nodes, _random_disturbances(random, pools, nodes))
        ),
        fault_rates=EffectFaultRates() if calm else _random_fault_rates(random),
        decision_delay=random.choice((0.05, 0.1, 1.0)),
        deposed_seconds=0.0 if calm else random.choice((0.0, 5.0, 30.0)),
        never_loads=never_loads,
        never_validates=never_validates,
        failure_prone=not calm and random.random() < 0.4,
        missing_images=random.choice((0.0, 0.1, 0.5)) if seed >= IMAGES else 0.0,
    )


def _with_taints(node: StageNodeSpec) -> StageNodeSpec:
    """Give the node the taint of others, and a new one those of its template."""
    template = () if node.target else FROM_TEMPLATE
    return msgspec.structs.replace(node, taints=(*template, OTHERS_TAINT))


def _random_node(random: Random, name: str, pool: str) -> StageNodeSpec:
    return StageNodeSpec(
        name=name,
        pool=pool,
        variant=random.choices(VARIANTS, weights=(5, 1))[0],
        kernel=KERNEL,
        target="" if random.random() < 0.15 else TARGETS[0],
        tenants=tuple(
            _random_tenant(random, index) for index in range(random.choice((0, 1, 1, 2, 3)))
        ),
        cordoned_by="kubectl-cordon" if random.random() < 0.08 else "",
        obstacles=(
            (Finding(code="nouveau", message="nouveau is loaded", remedy="remove it"),)
            if random.random() < 0.04
            else ()
        ),
        host_processes=1 if random.random() < 0.03 else 0,
        upgrade_last=random.random() < 0.1,
    )


def _random_tenant(random: Random, index: int) -> Tenant:
    kind = random.random()
    if kind < 0.12:
        return Tenant(name=f"dcgm-{index}", exemption=EvictionExemption.OPERAND, gpus=1)
    job = kind < 0.45
    refused_for = random.choices((0.0, 20.0, 400.0, None), weights=(12, 3, 1, 1))[0]
    return Tenant(
        name=f"{'job' if job else 'service'}-{index}",
        gpus=random.choice((0, 1, 4)),
        job=job,
        remaining=random.choice((30.0, 600.0, 4000.0, None)) if job else None,
        eviction_refused_for=refused_for,
        stop_seconds=random.choices((2.0, 30.0, None), weights=(16, 4, 1))[0],
        is_recreated=not job,
        exemption=random.choices(
            (EvictionExemption.NONE, EvictionExemption.DRAIN_SKIP), weights=(15, 1)
        )[0],
        bare=random.random() < 0.05,
        empty_dir=random.random() < 0.05,
    )


def _random_fault_rates(random: Random) -> EffectFaultRates:
    if random.random() < 0.4:
        return EffectFaultRates()
    return EffectFaultRates(
        **{
            name: random.choice((0.0, 0.0, 0.02, 0.1))
            for name in ("lost", "late", "twice", "half", "unanswered")
        }
    )


def _random_disturbances(
    random: Random, pools: tuple[PoolView, ...], nodes: tuple[StageNodeSpec, ...]
) -> tuple[Disturbance, ...]:
    number = random.choice((0, 1, 1, 2, 3, 5, 8))
    names = [node.name for node in nodes]
    keys = [pool.key for pool in pools]
    drawn: list[Disturbance] = []
    for _ in range(number):
        # Exponents below 1 draw early times: most of an upgrade happens within minutes.
        at = random.uniform(0.0, DISTURBED_SECONDS) ** random.choice((0.6, 0.75, 1.0))
        drawn.append(random_disturbance(random, names, keys, round(at, 2)))
    return tuple(sorted(drawn, key=lambda disturbance: disturbance.at))


def _with_added(
    added: list[Disturbance], drawn: tuple[Disturbance, ...]
) -> tuple[Disturbance, ...]:
    return tuple(sorted((*drawn, *added), key=lambda each: each.at)) if added else drawn


def _with_unseen_ends(
    seed: int, nodes: tuple[StageNodeSpec, ...], drawn: tuple[Disturbance, ...]
) -> tuple[Disturbance, ...]:
    """Add, in some seeds, drivers that end between their validation and the next decision."""
    random = Random(f"{seed}/unseen")
    if random.random() >= 0.2:
        return drawn
    names, at = [node.name for node in nodes], random.choice((0.0, 60.0, 400.0))
    added = [random_unseen_end(random, names, at) for _ in range(random.choice((1, 1, 2)))]
    return tuple(sorted((*drawn, *added), key=lambda disturbance: disturbance.at))
