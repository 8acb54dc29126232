"""A story that went wrong, in plain lines, for a person."""

from tests.component.rollout.simulation.runner import SimulationResult
from tests.component.rollout.simulation.scenario import START

FIRST, LAST = 90, 60
"""Lines that are told of a long story: from its beginning, and from its end."""


def failure_report(played: SimulationResult) -> str:
    """What it was, what happened when, and what is wrong."""
    scenario, wrong = played.scenario, played.wrong
    lines = [f"seed {scenario.seed}"]
    for pool in scenario.pools:
        up = pool.upgrade
        lines.append(
            f"pool {pool.key} ({pool.method}): wants {pool.target}, maxUnavailable "
            f"{up.max_unavailable}, maxParallel {up.max_parallel_upgrades}, threshold "
            f"{pool.strategy.failure_threshold}, retries {pool.strategy.retries}, "
            f"onJobTimeout {pool.strategy.on_job_timeout}, onEvictionTimeout "
            f"{pool.strategy.on_eviction_timeout}, cordoned {pool.strategy.cordoned_nodes}, "
            f"jobs {up.wait_for_completion.pod_selector!r} "
            f"{up.wait_for_completion.timeout_seconds} s, eviction "
            f"{up.pod_deletion.timeout_seconds} s, drain {up.drain.enable}"
        )
    for plan in scenario.nodes:
        tenants = ", ".join(str(tenant) for tenant in plan.tenants)
        cordon = f", cordoned by {plan.cordoned_by}" if plan.cordoned_by else ""
        lines.append(
            f"node {plan.name} of {plan.pool or 'no pool'} ({plan.variant}): runs "
            f"{plan.target or 'nothing'}{cordon}; {tenants}"
        )
    if scenario.bad or scenario.unsound:
        lines.append(f"never load: {set(scenario.bad)}; never pass: {set(scenario.unsound)}")
    lines += [f"act {act}" for act in scenario.acts]
    lines += [f"strike {strike}" for strike in scenario.strikes or ()]
    lines.append(
        f"rates {scenario.rates}, think {scenario.think} s, zombie {scenario.zombie} s, "
        f"rough {scenario.rough}"
    )
    ends = played.stage.now if wrong is None or wrong.at is None else wrong.at
    told = [f"{at - START:9.2f} {text}" for at, text in played.stage.log_lines if at <= ends]
    left_out = len(told) - FIRST - LAST
    if left_out > 0:
        told[FIRST:-LAST] = [f"          … {left_out} lines …"]
    lines += told
    lines.append(f"{ends - START:9.2f} WRONG: {wrong or 'nothing'}")
    return "\n".join(lines)
