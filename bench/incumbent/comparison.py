"""Measure both columns and print them side by side.

The incumbent is the upgrade library of the GPU Operator as of March 2025, in a Go program with the
operator's loop (`controller`). Both columns have the same control plane, fleet, policy and world,
one after the other. Real are API server, etcd, Kubernetes' controllers and scheduler, NATS, the
incumbent's library, and our services and agents; simulated are kubelets, containers and machines.

One factor divides the times of the world, of the kubelets' back-off and of the incumbent's pass
every two minutes. Nothing else is scaled: the time of requests, the library's and our own limits.
"""

import os
import textwrap
from collections.abc import Callable

from bench.incumbent import ours, theirs
from bench.incumbent.build import build
from bench.incumbent.column import Column
from bench.incumbent.ground import provision
from bench.incumbent.plan import (
    FAILURE_THRESHOLD,
    MAX_UNAVAILABLE,
    STAGES,
    Plan,
    Stage,
)
from bench.report import BenchReport
from libs.testing.go_build import NotBuilt
from libs.testing.realkube.binaries import find_binaries

UNSCALED = (
    "requests and processes; the controller's retries after errors (0.1 to 3 s) and the library's "
    "limit of a validation (600 s); our heartbeats, probes of freshness, retries and limits"
)
INCUMBENT_TITLE = "March 2025"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "evict", "event")


async def measure(report: BenchReport, nodes: int) -> None:
    """Print the figures of both columns, or what is missing."""
    search = find_binaries(os.environ)
    if search.binaries is None:
        print(f"  skipped: {search.explanation}")
        return
    try:
        program = build(os.environ, report=lambda line: print(f"  {line}", flush=True))
    except NotBuilt as error:
        print(f"  skipped: {error}")
        return
    plan = Plan(nodes=nodes)
    _introduce(plan)
    async with provision(search.binaries, plan) as ground:
        await ground.install()
        incumbent = await theirs.measure(ground, program)
        print("  the incumbent is measured", flush=True)
        await theirs.clear(ground)
        sluice = await ours.measure(ground)
    for stage, their_column, our_column in zip(STAGES, incumbent, sluice, strict=True):
        _compare(report, plan, stage, their_column, our_column)


def _introduce(plan: Plan) -> None:
    text = (
        f"{plan.nodes} nodes, maxParallelUpgrades {plan.parallel}, maxUnavailable "
        f"{MAX_UNAVAILABLE}, a pod with GPUs on three of five nodes. Two upgrades: one without "
        "trouble; one in which a driver never loads on one node, and a person cordons a node "
        "before it and a node that waits for its turn. Ours has failureThreshold "
        f"{FAILURE_THRESHOLD}; with its default, 5 % of 20 nodes, the first failed node halts the "
        "rollout until a person resumes it. "
        f"Divided by {plan.factor:g}: the times of the world, the back-off of containers, and the "
        f"incumbent's pass every two minutes. Not scaled: {UNSCALED}. Simulated: kubelets, "
        "containers, machines."
    )
    print(textwrap.fill(text, 98, initial_indent="  ", subsequent_indent="  "), flush=True)


def _compare(
    report: BenchReport, plan: Plan, stage: Stage, incumbent: Column, sluice: Column
) -> None:
    def row(name: str, of: Callable[[Column], float | None], unit: str = "") -> None:
        report.compare(f"  {name}", _shown(of(incumbent)), _shown(of(sluice)), unit)

    report.compare(f"measured: {stage.title}", INCUMBENT_TITLE, "ours")
    row("until every other node is upgraded", lambda each: each.makespan, "s")
    row("  scaled back", lambda each: _times(each.makespan, plan.factor), "s")
    row("idle, per ordinary node", lambda each: each.idle, "s")
    row("nodes cordoned at once, at most", lambda each: each.cordoned)
    row("nodes upgraded", lambda each: each.done)
    row("nodes harmed", lambda each: each.harmed)
    if stage.troubled:
        row("bad node reported as failed, after its cordon", lambda each: each.failed_after, "s")
        row("cordons of people", lambda each: each.cordons)
        row("  of them kept", lambda each: each.kept)
    _compare_requests(report, incumbent, sluice)
    controller, scheduler = incumbent.cpu[theirs.COLUMN], sluice.cpu[ours.SCHEDULER]
    report.compare("  CPU, controller / scheduler", controller, scheduler, "s")
    others = sum(sluice.cpu.values()) - scheduler
    report.compare("  CPU of our other services", "-", others, "s")
    row("load average of this machine", lambda each: each.load, f"on {os.cpu_count()} cores")


def _compare_requests(report: BenchReport, incumbent: Column, sluice: Column) -> None:
    """Compare the controller with the scheduler; the incumbent runs no other service."""
    mine, others = sluice.requests[ours.SCHEDULER], sluice.requests[ours.OTHERS]
    controller = incumbent.requests[theirs.COLUMN]
    report.compare("  requests, controller / scheduler", controller.total(), mine.total())
    for verb in VERBS:
        if controller[verb] or mine[verb]:
            report.compare(f"    {verb}", controller[verb], mine[verb])
    report.compare("  requests of our other services", "-", others.total())


def _times(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor


def _shown(value: float | None) -> float | str:
    return "-" if value is None else float(value)
