"""Examples of queries and answers."""

from libs.contracts.node import WaitCode
from libs.contracts.queries import (
    PlanAnswer,
    PlannedNode,
    PlanQuery,
    PoolStatus,
    QueryError,
    QueryErrorCode,
    StatusAnswer,
    StatusQuery,
    WaitReason,
    WhyAnswer,
    WhyQuery,
)
from tests.contracts import examples
from tests.contracts.examples import Example
from tests.contracts.examples_stored import COUNTS

PDB = WaitReason(
    code=WaitCode.PDB,
    detail="ml/trainer allows 0 disruptions",
    since=examples.T0,
    until=examples.T0 + 300,
    who="who owns ml/trainer",
)

EXAMPLES = {
    "ask.status.question": Example(StatusQuery(pool=examples.POOL)),
    "ask.status.question@all-pools": Example(StatusQuery()),
    "ask.status.answer": Example(
        StatusAnswer(
            at=examples.T0,
            leader="sluice-scheduler-0",
            epoch=examples.EPOCH,
            sources={"nodes": 0.5, "reports": 1.25},
            pools=(
                PoolStatus(
                    pool=examples.POOL,
                    target=examples.TARGET,
                    phase="Halted",
                    because="1 of 1 failures: gpu-1.rack-7.example (busy)",
                    brake="Pause",
                    counts=COUNTS,
                    waits={"halted": 12, "pdb": 1},
                ),
            ),
        )
    ),
    "ask.why.question": Example(WhyQuery(node=examples.NODE)),
    "ask.why.answer": Example(
        WhyAnswer(
            node=examples.NODE,
            node_uid=examples.NODE_UID,
            pool=examples.POOL,
            state="pod-deletion-required",
            target=examples.TARGET,
            wait=PDB,
            history=("12:00:00 upgrade-required", "12:00:10 pod-deletion-required"),
        )
    ),
    "ask.why.answer@in-place": Example(
        WhyAnswer(
            node=examples.NODE,
            node_uid=examples.NODE_UID,
            pool=examples.POOL,
            state="upgrade-done",
            target=examples.TARGET,
            in_place=True,
        )
    ),
    "ask.plan.question": Example(
        PlanQuery(
            pool=examples.POOL,
            driver_version="580.95.05",
            max_unavailable="25%",
            max_parallel=4,
            finish_by=examples.T0 + 86_400,
            seed=1,
        )
    ),
    "ask.plan.answer": Example(
        PlanAnswer(
            pool=examples.POOL,
            target=examples.TARGET,
            nodes=(
                PlannedNode(
                    node=examples.NODE,
                    start_p50=60.0,
                    start_p95=180.0,
                    end_p50=420.0,
                    end_p95=900.0,
                    evicted=("ml/trainer-0",),
                    lost=("ml/notebook",),
                    blocked_by=("ml/trainer",),
                    wait=PDB,
                ),
            ),
            makespan_p50=7_200.0,
            makespan_p95=10_800.0,
            gpu_hours_lost=38.5,
            largest_loss=24,
            largest_loss_at=3_600.0,
            needed_max_unavailable=5,
            remarks=("one busy node holds up the proof: gpu-1.rack-7.example",),
        )
    ),
    "ask.problem": Example(
        QueryError(
            code=QueryErrorCode.NOT_FOUND,
            message="no node gpu-9 is known; `kubectl get nodes` lists them",
        )
    ),
}
