"""`upgradePolicy`: how the nodes of a pool are upgraded to another driver."""

from typing import Annotated

from libs.policy.shapes import About, IntOrString, PolicyStruct


class PodDeletion(PolicyStruct, frozen=True, kw_only=True):
    """How pods that use a GPU are evicted."""

    force: Annotated[
        bool,
        About(
            "Whether pods that nobody would make anew are evicted too.",
            effect="without it such a pod is found by the preflight, before the cordon",
            stored=True,
        ),
    ] = False
    timeout_seconds: Annotated[
        int,
        About(
            "Seconds until an eviction is given up; 0 is for ever.",
            effect="then the strategy's onEvictionTimeout holds",
            stored=True,
            minimum=0,
        ),
    ] = 300
    delete_empty_dir: Annotated[
        bool,
        About(
            "Whether pods with an emptyDir may lose it.",
            effect="without it such a pod is found by the preflight, before the cordon",
            stored=True,
        ),
    ] = False


class Drain(PodDeletion, frozen=True, kw_only=True):
    """Whether and how the node is drained."""

    enable: Annotated[
        bool,
        About(
            "Whether the node is drained after its GPU pods are gone.",
            effect="adds the state drain-required",
            stored=True,
        ),
    ] = False
    pod_selector: Annotated[
        str, About("Which pods leave; empty means all.", effect="evicts only these in the drain")
    ] = ""


class WaitForCompletion(PolicyStruct, frozen=True, kw_only=True):
    """The jobs that must complete before pods are evicted."""

    pod_selector: Annotated[
        str,
        About("The pods of the jobs; empty means that none is waited for.", effect="as it says"),
    ] = ""
    timeout_seconds: Annotated[
        int,
        About(
            "Seconds until waiting ends; 0 is for ever.",
            effect="then the strategy's onJobTimeout holds",
            stored=True,
            minimum=0,
        ),
    ] = 0


class UpgradePolicy(PolicyStruct, frozen=True, kw_only=True):
    """How many nodes are upgraded at a time, and how their pods are removed."""

    auto_upgrade: Annotated[
        bool,
        About(
            "Whether nodes move to a new driver by themselves.",
            effect="off is a pause: nothing starts, what is in flight finishes",
            stored=True,
        ),
    ] = False
    max_parallel_upgrades: Annotated[
        int,
        About(
            "How many nodes may be in an upgrade at a time; 0 is as many as maxUnavailable allows.",
            effect="each start costs 1",
            stored=True,
            minimum=0,
        ),
    ] = 1
    max_unavailable: Annotated[
        IntOrString,
        About(
            "How many of the pool's nodes may be unavailable, for whatever reason.",
            effect="a percentage is rounded up, to at least 1; 0: nothing available starts",
            stored=True,
            int_or_percent=True,
        ),
    ] = "25%"
    pod_deletion: Annotated[PodDeletion, About("How GPU pods are evicted.")] = PodDeletion()
    gpu_pod_deletion: Annotated[
        PodDeletion | None, About("As podDeletion.", alias="podDeletion")
    ] = None
    wait_for_completion: Annotated[WaitForCompletion, About("Which jobs are waited for.")] = (
        WaitForCompletion()
    )
    drain: Annotated[Drain, About("Whether and how the node is drained.")] = Drain()


class AutoUpgradePolicy(UpgradePolicy, frozen=True, kw_only=True):
    """An upgrade policy with automatic upgrades on by default."""

    auto_upgrade: Annotated[
        bool,
        About(
            "Whether nodes move to a new driver by themselves.",
            effect="off is a pause: nothing starts, what is in flight finishes",
            stored=True,
        ),
    ] = True
