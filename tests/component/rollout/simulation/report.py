"""Print a run of the simulation for a person."""

from tests.component.rollout.simulation.runner import SimulationResult
from tests.component.rollout.simulation.scenario import START, Scenario

FIRST_LINES, LAST_LINES = 90, 60
"""Log lines to print of a long run: from its beginning, and from its end."""


def failure_report(result: SimulationResult) -> str:
    wrong = result.wrong
    end = result.stage.now if wrong is None or wrong.at is None else wrong.at
    log = [f"{at - START:9.2f} {text}" for at, text in result.stage.log_lines if at <= end]
    left_out = len(log) - FIRST_LINES - LAST_LINES
    if left_out > 0:
        log[FIRST_LINES:-LAST_LINES] = [f"          … {left_out} lines …"]
    last = f"{end - START:9.2f} WRONG: {wrong or 'nothing'}"
    return "\n".join([*_scenario_lines(result.scenario), *log, last])


def _scenario_lines(scenario: Scenario) -> list[str]:
    lines = [f"seed {scenario.seed}"]
    for pool in scenario.pools:
        up = pool.upgrade
        lines.append(
            f"pool {pool.key} ({pool.method}): target {pool.target}, maxUnavailable "
            f"{up.max_unavailable}, maxParallel {up.max_parallel_upgrades}, threshold "
            f"{pool.strategy.failure_threshold}, retries {pool.strategy.retries}, "
            f"onJobTimeout {pool.strategy.on_job_timeout}, onEvictionTimeout "
            f"{pool.strategy.on_eviction_timeout}, cordoned {pool.strategy.cordoned_nodes}, "
            f"jobs {up.wait_for_completion.pod_selector!r} "
            f"{up.wait_for_completion.timeout_seconds} s, eviction "
            f"{up.pod_deletion.timeout_seconds} s, drain {up.drain.enable}"
        )
    for spec in scenario.nodes:
        tenants = ", ".join(str(tenant) for tenant in spec.tenants)
        cordon = f", cordoned by {spec.cordoned_by}" if spec.cordoned_by else ""
        lines.append(
            f"node {spec.name} in pool {spec.pool or 'none'} ({spec.variant}): runs "
            f"{spec.target or 'nothing'}{cordon}; {tenants}"
        )
    if scenario.never_loads or scenario.never_validates:
        lines.append(
            f"never load: {set(scenario.never_loads)}; "
            f"never validate: {set(scenario.never_validates)}"
        )
    lines += [f"disturbance {each}" for each in scenario.disturbances]
    lines += [f"effect fault {each}" for each in scenario.effect_faults or ()]
    lines.append(
        f"{scenario.fault_rates}, decision delay {scenario.decision_delay} s, a deposed leader "
        f"decides for {scenario.deposed_seconds} s, failure-prone {scenario.failure_prone}"
    )
    return lines
