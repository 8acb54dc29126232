"""Facts for an audit that only a simulated cluster has: device holders and members of pools."""

from libs.contracts.records import AuditJournal, DeviceHold, PoolFacts
from libs.forecast.stage import driver_agent
from libs.forecast.stage.objects import StageMachine, StageNode
from libs.forecast.stage.recorder import JournalRecorder
from libs.forecast.stage.state import StageState


def on_machine_changed(state: StageState, machine: StageMachine) -> None:
    recorder = state.recorder
    node = state.nodes.get(machine.name)
    if recorder is None or node is None:
        return
    now = dict.fromkeys(driver_agent.holders(machine), True)
    before = recorder.holders.get(node.uid, ())
    if before != tuple(now):
        recorder.holders[node.uid] = tuple(now)
        recorder.record_holders(state.now, node.uid, {**dict.fromkeys(before, False), **now})
    record_pool_facts(state)


def on_node_changed(state: StageState, _name: str, _paths: frozenset[str]) -> None:
    record_pool_facts(state)


def record_pool_facts(state: StageState) -> None:
    """Record the facts of each pool if they changed."""
    recorder = state.recorder
    if recorder is None:
        return
    driverless = frozenset(node.uid for node in state.nodes.values() if _is_driverless(state, node))
    for key, pool in state.pools.items():
        facts = PoolFacts(
            key=key,
            since=state.now,
            members=frozenset(node.uid for node in state.nodes.values() if node.pool == key),
            max_unavailable=pool.upgrade.max_unavailable,
            failure_threshold=pool.strategy.failure_threshold,
            driverless=driverless,
        )
        content = (facts.members, facts.max_unavailable, facts.failure_threshold, driverless)
        if recorder.last_pool_facts.get(key) != content:
            recorder.last_pool_facts[key] = content
            recorder.pool_facts = [
                each for each in recorder.pool_facts if (each.key, each.since) != (key, state.now)
            ]
            recorder.pool_facts.append(facts)


def _is_driverless(state: StageState, node: StageNode) -> bool:
    reported = state.driver_facts.get(node.name)
    return reported is not None and reported.loaded is None


def build_journal(recorder: JournalRecorder) -> AuditJournal:
    holds = [
        DeviceHold(node_uid=uid, since=since, until=until, holder=who)
        for uid, who, since, until in recorder.device_holds
    ]
    holds += [
        DeviceHold(node_uid=uid, since=since, holder=who)
        for (uid, who), since in recorder.open_device_holds.items()
    ]
    return AuditJournal(
        revisions=tuple(recorder.revisions),
        entries=tuple(recorder.entries),
        start=tuple(recorder.start),
        pools=tuple(recorder.pool_facts),
        device_holds=tuple(holds),
        lost_journals=tuple(recorder.lost_journals),
    )
