"""What people other than the demo's own do to the fleet, told from two snapshots of it. Pure.

Events of the scheduler tell who set a brake or a release, took a lease, or cordoned a node.
"""

from collections.abc import Iterator, Mapping

from demo.observed import Observed, SeenPool
from libs.contracts.rollout import Brake

Setting = tuple[str, str]
"""What people set, and on which object."""


def settings_of(observed: Observed) -> dict[Setting, str]:
    """Return what people have set, as text."""
    found: dict[Setting, str] = {}
    for pool in observed.pools.values():
        found["version", pool.name] = pool.wanted
        if pool.wanted:
            found["maxUnavailable", pool.name] = pool.max_unavailable
            found["autoUpgrade", pool.name] = "true" if pool.is_automatic else "false"
    for node in observed.nodes.values():
        found["skip", node.name] = "skipped" if node.skipped else ""
    return found


def told_changes(
    before: Mapping[Setting, str],
    observed: Observed,
    *,
    ours: Mapping[Setting, str],
) -> Iterator[str]:
    """Yield a line for each change by somebody else; `ours` is what the demo set, still unseen."""
    for what, name in before:
        if what == "skip" and name not in observed.nodes:
            yield f"somebody else deleted Node {name}"
    for key, value in settings_of(observed).items():
        old = before.get(key, "")
        if value == old or ours.get(key) == value or key not in before:
            continue
        what, name = key
        if what == "version" and not value:
            yield f"somebody else deleted NVIDIADriver {name}"
            continue
        managers = observed.pools[name].managers if name in observed.pools else ()
        by = f" (field manager {managers[-1]})" if what == "version" and managers else ""
        yield f"somebody else set {what} of {name}: {old or 'none'} -> {value or 'none'}{by}"


def still_unseen(
    ours: Mapping[Setting, str], before: Mapping[Setting, str], now: Mapping[Setting, str]
) -> dict[Setting, str]:
    """Return what the demo has set that was not seen to come yet.

    What came, or was there before and has gone, is forgotten: whoever sets it again is told.
    """
    return {
        key: value
        for key, value in ours.items()
        if before.get(key) == now.get(key) or value not in (before.get(key), now.get(key))
    }


def holds(observed: Observed) -> list[str]:
    """Return what people hold up: while they do, nobody else can make the demo go on."""
    held = [text for pool in observed.pools.values() for text in _holds_of(pool)]
    leased = [
        f"{each.name} is leased by a person"
        for each in observed.nodes.values()
        if each.held is not None and not each.held.waits
    ]
    return held + leased


def _holds_of(pool: SeenPool) -> Iterator[str]:
    if pool.spec.brake != Brake.NONE:
        yield f"{pool.name} has brake {pool.spec.brake}"
    if not pool.wanted and pool.status.version:
        yield f"{pool.name} has no NVIDIADriver"
    if pool.max_unavailable in ("0", "0%"):
        yield f"{pool.name} has maxUnavailable {pool.max_unavailable}"
    if not pool.is_automatic:
        yield f"{pool.name} has autoUpgrade false"
