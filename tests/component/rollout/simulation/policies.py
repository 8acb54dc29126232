"""The policies of a scenario: targets, builds and upgrade rules of its pools."""

from random import Random

from msgspec.structs import replace

from libs.contracts.rollout import RolloutPhase, RolloutStatus, TargetRecord
from libs.policy.kinds.strategy import (
    CordonedNodes,
    OnEvictionTimeout,
    OnJobTimeout,
    StrategySpec,
)
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion, UpgradePolicy, WaitForCompletion
from libs.policy.shapes import scaled_value
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeTaint
from libs.rollout.views.pool import Build, PoolView, RolloutView
from libs.testing.stage import StageNodeSpec

TARGETS = ("A", "B", "C")
"""Nodes run the first; pools want the second at the start."""
VARIANTS = ("u24", "u22")


def label_of(pool: str, target: str, variant: str) -> str:
    return f"{pool}-{target}-{variant}"


def builds_of(pool: str, target: str, method: InstallMethod) -> dict[str, Build]:
    """Return the builds of a target. C installs the same driver as B: B to C is a restart only."""
    install = {"C": "B"}.get(target, target)
    return {
        variant: Build(
            label=label_of(pool, target, variant),
            install_digest=f"install-{install}-{variant}",
            artefact=f"sha256:{install}" if method is InstallMethod.HOST else "",
        )
        for variant in VARIANTS
    }


def with_images(pool: PoolView) -> PoolView:
    """Return the pool with container images that are brought to nodes before they are drained."""
    if pool.method is not InstallMethod.CONTAINER:
        return pool
    builds = {
        target: {
            variant: replace(build, image=f"r.example/{build.label}")
            for variant, build in variants.items()
        }
        for target, variants in pool.builds.items()
    }
    return replace(pool, builds=builds)


STARTUP_TAINT = "example.com/starting"
FROM_TEMPLATE = (
    NodeTaint(key=STARTUP_TAINT, effect="NoSchedule"),
    NodeTaint(key=STARTUP_TAINT, effect="NoExecute"),
)
"""The taints with which nodes come."""
OTHERS_TAINT = NodeTaint(key="nvidia.com/gpu", effect="NoSchedule", value="present")


def with_startup_taint(pool: PoolView) -> PoolView:
    return replace(pool, strategy=replace(pool.strategy, startup_taint=STARTUP_TAINT))


def random_pools(random: Random) -> tuple[PoolView, ...]:
    keys = ("p",) if random.random() < 0.8 else ("p", "q")
    return tuple(_random_pool(random, key) for key in keys)


def _random_pool(random: Random, key: str) -> PoolView:
    method = random.choices(
        (InstallMethod.CONTAINER, InstallMethod.HOST, InstallMethod.PRE_INSTALLED),
        weights=(8, 1, 0.3),
    )[0]
    return PoolView(
        key=key,
        uid=f"uid-{key}",
        target=TARGETS[1],
        method=method,
        builds={target: builds_of(key, target, method) for target in TARGETS[:2]},
        upgrade=random_upgrade_policy(random),
        strategy=StrategySpec(
            pool=key,
            failure_threshold=random.choice(("5%", "30%", 1, 2, 3)),
            retries=random.choice((0, 1, 1, 3)),
            on_job_timeout=random.choice(tuple(OnJobTimeout)),
            on_eviction_timeout=random.choice(tuple(OnEvictionTimeout)),
            cordoned_nodes=random.choices(tuple(CordonedNodes), weights=(3, 1))[0],
        ),
    )


def proven_before(pool: PoolView, nodes: tuple[StageNodeSpec, ...]) -> PoolView:
    """Return the pool with a Rollout in which the first target is proven and complete."""
    base = sum(plan.pool == pool.key for plan in nodes)
    threshold = max(1, scaled_value(pool.strategy.failure_threshold, base))
    earlier = tuple(f"earlier-{number}" for number in range(threshold))
    status = RolloutStatus(
        target=TARGETS[0],
        phase=RolloutPhase.COMPLETE,
        epoch=1,
        base=base,
        last_good=TARGETS[0],
        targets={
            TARGETS[0]: TargetRecord(
                threshold=threshold, validated=earlier, proven=True, complete=True
            )
        },
    )
    return replace(pool, rollout=RolloutView(uid=f"rollout-{pool.key}", revision="", status=status))


def random_upgrade_policy(random: Random) -> UpgradePolicy:
    return UpgradePolicy(
        auto_upgrade=random.random() < 0.97,
        max_parallel_upgrades=random.choice((0, 0, 1, 1, 2, 4)),
        max_unavailable=random.choice(("25%", "50%", "100%", 1, 1, 2, 0)),
        pod_deletion=PodDeletion(
            force=random.random() < 0.5,
            timeout_seconds=random.choice((0, 60, 300)),
            delete_empty_dir=random.random() < 0.5,
        ),
        wait_for_completion=WaitForCompletion(
            pod_selector=random.choice(("", "", "kind=job")),
            timeout_seconds=random.choice((0, 120, 3600)),
        ),
        drain=Drain(enable=random.random() < 0.3, timeout_seconds=random.choice((60, 300))),
    )


def random_failing_drivers(
    random: Random, pools: tuple[PoolView, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the labels of drivers that never load, and of drivers that never pass validation."""
    dice = random.random()
    labels = frozenset(label_of(pool.key, "B", variant) for pool in pools for variant in VARIANTS)
    if dice < 0.12:
        return labels, frozenset()
    if dice < 0.24:
        return frozenset(), labels
    return frozenset(), frozenset()
