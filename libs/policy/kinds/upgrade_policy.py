"""`upgradePolicy`: how the nodes of a pool are upgraded to another driver."""

from typing import Annotated

from libs.policy.shapes import About, IntOrString, PolicyStruct

AutoUpgrade = Annotated[
    bool,
    About(
        "Whether nodes are upgraded to a new driver automatically.",
        effect="false: a node that has a driver keeps it until somebody deletes its driver pod, and"
        " is then upgraded; nodes in flight finish",
        stored=True,
    ),
]


class PodDeletion(PolicyStruct, frozen=True, kw_only=True):
    """How pods that use a GPU are evicted."""

    force: Annotated[
        bool,
        About(
            "Whether pods that no controller would recreate are evicted too.",
            effect="if false, the preflight check reports such a pod before the node is cordoned",
            stored=True,
        ),
    ] = False
    timeout_seconds: Annotated[
        int,
        About(
            "Seconds until evictions time out; 0 means never.",
            effect="then the strategy's onEvictionTimeout applies",
            stored=True,
            minimum=0,
        ),
    ] = 300
    delete_empty_dir: Annotated[
        bool,
        About(
            "Whether pods with an emptyDir volume may be evicted, which deletes its data.",
            effect="if false, the preflight check reports such a pod before the node is cordoned",
            stored=True,
        ),
    ] = False


class Drain(PodDeletion, frozen=True, kw_only=True):
    """Whether and how the node is drained."""

    enable: Annotated[
        bool,
        About(
            "Whether the node is drained after its GPU pods have left.",
            effect="adds the state drain-required",
            stored=True,
        ),
    ] = False
    pod_selector: Annotated[
        str,
        About(
            "Which pods are drained; empty means all.", effect="the drain evicts only these pods"
        ),
    ] = ""


class WaitForCompletion(PolicyStruct, frozen=True, kw_only=True):
    """The jobs that must complete before pods are evicted."""

    pod_selector: Annotated[
        str,
        About(
            "Selects the pods of jobs; empty means not to wait for any.",
            effect="the upgrade waits for these pods before it evicts any",
        ),
    ] = ""
    timeout_seconds: Annotated[
        int,
        About(
            "Seconds until the wait times out; 0 means never.",
            effect="then the strategy's onJobTimeout applies",
            stored=True,
            minimum=0,
        ),
    ] = 0


class UpgradePolicy(PolicyStruct, frozen=True, kw_only=True):
    """How many nodes are upgraded at a time, and how their pods are removed."""

    auto_upgrade: AutoUpgrade = False
    max_parallel_upgrades: Annotated[
        int,
        About(
            "How many nodes may be upgraded at a time; 0 means as many as maxUnavailable allows.",
            effect="each started node counts as 1",
            stored=True,
            minimum=0,
        ),
    ] = 1
    max_unavailable: Annotated[
        IntOrString,
        About(
            "How many of the pool's nodes may be unavailable, for any reason.",
            effect="a percentage is rounded up, to at least 1; with 0, no available node starts",
            stored=True,
            int_or_percent=True,
        ),
    ] = "25%"
    pod_deletion: Annotated[PodDeletion, About("How GPU pods are evicted.")] = PodDeletion()
    gpu_pod_deletion: Annotated[
        PodDeletion | None, About("Same as podDeletion.", alias="podDeletion")
    ] = None
    wait_for_completion: Annotated[
        WaitForCompletion, About("Which jobs the upgrade waits for.")
    ] = WaitForCompletion()
    drain: Annotated[Drain, About("Whether and how the node is drained.")] = Drain()


class AutoUpgradePolicy(UpgradePolicy, frozen=True, kw_only=True):
    """An upgrade policy with automatic upgrades on by default."""

    auto_upgrade: AutoUpgrade = True
