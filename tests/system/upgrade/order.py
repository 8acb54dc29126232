"""In which order things happened in an upgrade, by the records of API server and agents. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Final

from libs.contracts.commands import CommandKind
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry, EntryPhase, Revision, Verb
from libs.contracts.node import STATE_LABEL
from services.driver.cluster.claim_follower import REASON

EVICTED: Final = "a pod is evicted"
WITHDRAWN: Final = "the slice is empty"
PUBLISHED: Final = "the slice has devices"
EXCHANGED: Final = {
    EntryPhase.STARTED: "the drivers are exchanged",
    EntryPhase.FINISHED: "the new driver runs",
}
_DEVICE: Final = re.compile(r"spec\.devices\[name=[^\]]+\]\.name")
_STATE: Final = f'metadata.labels["{STATE_LABEL}"]'
_CHANGED: Final = re.compile(r"the driver of node (\S+) is being changed \((\S+)\)")

Moment = tuple[float, str]


def steps(
    revisions: Iterable[Revision],
    entries: Iterable[Entry],
    *,
    node: str,
    pods: Collection[str],
    since: float,
) -> list[str]:
    """Return what happened to a node and to pods since then, without immediate repetitions."""
    found = [*_writes(revisions, node, pods), *_swaps(entries, node)]
    recent = [what for at, what in sorted(found) if at >= since]
    return [what for what, _ in groupby(recent)]


def _writes(revisions: Iterable[Revision], node: str, pods: Collection[str]) -> Iterator[Moment]:
    devices: set[str] = set()
    for each in revisions:
        if each.verb is Verb.EVICT and each.name in pods and each.code < 300:
            yield each.time, EVICTED
        if each.kind == "ResourceSlice" and each.name.startswith(f"{node}-"):
            changes = [each.changed[path] for path in each.changed if _DEVICE.fullmatch(path)]
            devices -= {before for before, _ in changes}
            devices |= {after for _, after in changes if after}
            yield each.time, PUBLISHED if devices else WITHDRAWN


def _swaps(entries: Iterable[Entry], node: str) -> Iterator[Moment]:
    for each in entries:
        is_swap = (each.component, each.command) == (Writer.DRIVER, CommandKind.SWAP)
        if each.node == node and is_swap and each.phase in EXCHANGED:
            yield each.time, EXCHANGED[each.phase]


def seconds_until_said(revisions: Iterable[Revision]) -> list[float]:
    """Return for each Event on a claim how long its node had been in the state that it names.

    The time of the claim's allocation counts if it is later.
    """
    states: dict[tuple[str, str], float] = {}
    allocated: dict[str, float] = {}
    found: list[float] = []
    for each in revisions:
        if each.kind == "Node" and _STATE in each.changed:
            states[each.name, each.changed[_STATE][1]] = each.time
        if each.kind == "ResourceClaim" and any("allocation" in path for path in each.changed):
            allocated.setdefault(each.name, each.time)
        if said := _said_of_claim(each):
            claim, node, state = said
            found.append(each.time - max(states[node, state], allocated[claim]))
    return found


def _said_of_claim(event: Revision) -> tuple[str, str, str] | None:
    """Return the claim, the node and its state, if an Event says that its driver is changed."""
    created = {path: after for path, (_, after) in event.changed.items()}
    is_new = (event.kind, event.code, created.get("reason")) == ("Event", 201, REASON)
    about = _CHANGED.search(created.get("message", "")) if is_new else None
    if about is None or created["involvedObject.kind"] != "ResourceClaim":
        return None
    return created["involvedObject.name"], about[1], about[2]
