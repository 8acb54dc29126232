"""What only a simulated cluster can testify to an audit: who had the devices open, whose node is
whose, and on whom no driver is loaded.

Watches, and changes nothing.
"""

from libs.contracts.records import Held, Journal, PoolFacts
from libs.forecast.stage import driving
from libs.forecast.stage.chronicle import Chronicle
from libs.forecast.stage.objects import Machine, Node
from libs.forecast.stage.state import State


def look(state: State, machine: Machine) -> None:
    """Who holds the devices of this machine, from now on."""
    chronicle = state.chronicle
    node = state.nodes.get(machine.name)
    if chronicle is None or node is None:
        return
    now = dict.fromkeys(driving.holders(machine), True)
    before = chronicle.holders.get(node.uid, ())
    if before != tuple(now):
        chronicle.holders[node.uid] = tuple(now)
        chronicle.held(state.now, node.uid, {**dict.fromkeys(before, False), **now})
    testify(state)


def watch(state: State, _name: str, _paths: frozenset[str]) -> None:
    """A Node came, went, or changed: pools may have other members."""
    testify(state)


def testify(state: State) -> None:
    """What holds for each pool from now on, if that is news."""
    chronicle = state.chronicle
    if chronicle is None:
        return
    driverless = frozenset(
        node.uid for node in state.nodes.values() if _without_driver(state, node)
    )
    for key, pool in state.pools.items():
        facts = PoolFacts(
            key=key,
            since=state.now,
            members=frozenset(node.uid for node in state.nodes.values() if node.pool == key),
            max_unavailable=pool.upgrade.max_unavailable,
            failure_threshold=pool.strategy.failure_threshold,
            driverless=driverless,
        )
        said = (facts.members, facts.max_unavailable, facts.failure_threshold, driverless)
        if chronicle.testified.get(key) != said:
            chronicle.testified[key] = said
            chronicle.pools = [
                each for each in chronicle.pools if (each.key, each.since) != (key, state.now)
            ]
            chronicle.pools.append(facts)


def _without_driver(state: State, node: Node) -> bool:
    told = state.reported.get(node.name)
    return told is not None and told.loaded is None


def journal(chronicle: Chronicle) -> Journal:
    """All of it, in the audit's form."""
    held = [
        Held(node_uid=uid, since=since, until=until, who=who)
        for uid, who, since, until in chronicle.holds
    ]
    held += [
        Held(node_uid=uid, since=since, who=who)
        for (uid, who), since in chronicle.open_holds.items()
    ]
    return Journal(
        revisions=tuple(chronicle.revisions),
        entries=tuple(chronicle.entries),
        start=tuple(chronicle.start),
        pools=tuple(chronicle.pools),
        held=tuple(held),
        forgot=tuple(chronicle.forgot),
    )
