"""Hypothesis strategies for nodes at rest and pools."""

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order, Quiesce, Swap
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import MANAGER, LeaseOwner, NodeRequest, Operation
from libs.contracts.reports import PodUse, Usage
from libs.policy.kinds.strategy import CordonedNodes, StrategySpec
from libs.policy.wanted import InstallMethod
from libs.rollout.views.machine import Component, EvictionExemption, WorkloadPod
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.builders import (
    COMPONENTS,
    KERNEL,
    NEW,
    NOW,
    OLD,
    OPERATOR,
    PERSON,
    POOL,
    TOKEN,
    VARIANT,
    build,
    command,
    component,
    done,
    driver_pod,
    evidence,
    failed,
    idle_components,
    instant,
    label_of,
    lease,
    node,
    on_host,
    pool,
    record,
    required,
    version_of,
)

TARGETS = st.sampled_from([OLD, NEW])
LABELS = st.sampled_from(["", label_of(OLD), label_of(NEW), "nonsense"])
STATES = st.sampled_from(
    [
        "",
        "upgrade-done",
        "upgrade-failed",
        "upgrade-required",
        "drain-required",
        "validation-required",
        "nonsense",
    ]
)
MANAGERS = st.sampled_from([(), (MANAGER,), (PERSON,), (MANAGER, PERSON), (OPERATOR,)])


def mostly(strategy: st.SearchStrategy[Any], default: Any) -> st.SearchStrategy[Any]:
    """Prefer the default."""
    return st.one_of(st.just(default), st.just(default), strategy)


@st.composite
def records(draw: st.DrawFn) -> Any:
    target, proof = draw(TARGETS), draw(st.sampled_from([None, OLD, NEW]))
    return record(
        node_uid=draw(mostly(st.just("uid-of-earlier"), "uid-node-1")),
        state=draw(STATES),
        target=target,
        label=draw(LABELS),
        operation=draw(st.sampled_from([None, *Operation])),
        token=draw(st.sampled_from([TOKEN, TOKEN + 1])),
        started=draw(st.booleans()),
        attempt=draw(st.integers(0, 3)),
        asked=draw(st.booleans()),
        outside=draw(st.booleans()),
        edits=draw(st.integers(0, 2)),
        back_off_until=NOW + draw(st.sampled_from([-1.0, 0.0, 600.0])),
        back_off_seconds=draw(st.sampled_from([0.0, 600.0])),
        restarts=draw(st.sampled_from([(), (NOW - 60,), (NOW - 900, NOW - 600, NOW - 60)])),
        revalidated=draw(st.sampled_from(["", driver_pod(NEW).instance])),
        evidence=evidence(proof, passed=draw(mostly(st.just(False), True))) if proof else None,
    )


@st.composite
def components(draw: st.DrawFn) -> Component:
    bodies = [Idle(), Quiesce(), Swap(label="x")]
    slot = draw(
        st.one_of(
            st.none(),
            st.builds(
                command, st.sampled_from(bodies), order=st.tuples(st.just(TOKEN), st.integers(1, 3))
            ),
        )
    )
    return component(
        slot,
        last_beat=draw(mostly(st.just(NOW - 500), NOW - 20)),
        highest_order=Order(TOKEN, draw(st.integers(0, 4))),
    )


PODS = st.lists(
    st.builds(
        driver_pod,
        TARGETS,
        uid=st.sampled_from(["a", "b", f"pod-{NEW}-node-1"]),
        started=st.sampled_from([None, NOW - 3600, NOW - 60]),
        ready=st.booleans(),
        deleting=st.booleans(),
    ),
    max_size=2,
    unique_by=lambda pod: pod.uid,
).map(tuple)

WORKLOAD = WorkloadPod(namespace="ml", name="train-0", uid="pod-train", gpu=True)

CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "boot_id": st.just("boot-2"),
    "kernel": st.just("6.8.0-48-generic"),
    "pool": st.sampled_from(["", "nvidiadriver-a"]),
    "variant": st.sampled_from(["", "rhel9"]),
    "excluded": st.just(True),
    "ready": st.just(False),
    "cordoned": st.just(True),
    "state": STATES,
    "driver_label": LABELS,
    "lease": st.sampled_from(
        [None, MalformedAnnotation("{"), lease(owner=LeaseOwner.HUMAN), lease()]
    ),
    "record": st.one_of(st.none(), st.just(MalformedAnnotation("{")), records()),
    "initially_cordoned": st.just(True),
    "field_managers": st.dictionaries(st.sampled_from(list(NodeField)), MANAGERS),
    "last_managers": st.dictionaries(st.sampled_from(list(NodeField)), st.just(PERSON)),
    "skip": st.just(True),
    "request": st.sampled_from(list(NodeRequest)),
    "requested": st.just(True),
    "safe_load": st.just(True),
    "components": st.fixed_dictionaries({name: components() for name in COMPONENTS}),
    "driver_pods": PODS,
    "loaded": st.sampled_from([None, LoadedDriver(version=version_of(NEW), loaded_at=NOW - 60)]),
    "modules_reported": st.just(False),
    "gate": st.sampled_from([None, Gate(waiting_pod_uid="a", why="its slot cannot be read")]),
    "evidence": st.just(evidence(NEW, passed=False)),
    "usage": st.sampled_from([None, Usage(pods=(PodUse(pod_uid="p", gpus=1),))]),
    "pods": st.sampled_from(
        [
            (),
            (WORKLOAD,),
            (replace(WORKLOAD, bare=True),),
            (replace(WORKLOAD, exemption=EvictionExemption.SLUICE),),
        ]
    ),
}

BASES = st.sampled_from(
    [node(), done(), done(target=OLD), required(), failed(), failed(target=OLD)]
)


@st.composite
def nodes(draw: st.DrawFn, *, most: int = 5) -> NodeView:
    base = draw(BASES)
    names = draw(st.lists(st.sampled_from(sorted(CHANGES)), unique=True, max_size=most))
    return replace(base, **{name: draw(CHANGES[name]) for name in names})


@st.composite
def pools(draw: st.DrawFn) -> PoolView:
    target = draw(TARGETS)
    result = pool(
        target,
        constraints={
            "may_mark_required": draw(mostly(st.just(False), True)),
            "paused": draw(mostly(st.just("the brake is Pause"), "")),
            "halted": draw(mostly(st.just({target: "1 of 1 allowed failures"}), {})),
            "proven": draw(st.sampled_from([frozenset(), frozenset({OLD}), frozenset({NEW})])),
            "last_good": draw(st.sampled_from(["", OLD])),
        },
    )
    readiness = draw(mostly(st.sampled_from(list(Readiness)), Readiness.SETTLED))
    builds = {**result.builds, target: {VARIANT: build(target, readiness=readiness)}}
    cordoned = draw(mostly(st.just(CordonedNodes.SKIP), CordonedNodes.UPGRADE))
    strategy = StrategySpec(retries=draw(st.integers(0, 2)), cordoned_nodes=cordoned)
    result = replace(
        result, builds=builds, strategy=strategy, gone=draw(mostly(st.just(True), False))
    )
    method = draw(mostly(st.sampled_from(list(InstallMethod)), InstallMethod.CONTAINER))
    return on_host(result) if method is InstallMethod.HOST else replace(result, method=method)


INSTANTS = st.sampled_from(
    [
        instant(),
        instant(),
        instant(NOW + 3000),
        instant(bus_down_since=NOW - 10),
        instant(foreign_operator="its Lease is live"),
    ]
)

__all__ = ["INSTANTS", "KERNEL", "POOL", "idle_components", "nodes", "pools"]
