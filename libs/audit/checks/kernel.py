"""I5: the kernel alone says whether a driver can go, and nobody goes on against its word.

The driver agent writes each attempt to unload as a step of its op, whose detail is `unload: ` and
one word, then anything after a blank or a comma: `ok` (the modules are out), `busy` (EBUSY), `none`
(there were none).
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from libs.audit.checks.case import AuditCase, agent_violation
from libs.audit.findings import AuditFinding
from libs.contracts.commands import Order
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.records import DeviceHold
from libs.contracts.reports import Outcome

OUT: Final = "ok"
BUSY: Final = "busy"
NONE: Final = "none"
_Op = tuple[str, Order]
_UNLOAD: Final = re.compile(r"unload: *([a-z-]+)")


def unloads(case: AuditCase) -> Iterator[AuditFinding]:
    """After EBUSY an op unloads again or fails; it does nothing else, and never succeeds."""
    last: dict[_Op, str] = {}
    held: dict[str, list[DeviceHold]] = defaultdict(list)
    for one in case.journal.device_holds:
        held[one.node_uid].append(one)
    for entry in case.entries:
        if entry.component != Writer.DRIVER:
            continue
        key = entry.node_uid, entry.order
        if entry.phase == EntryPhase.STARTED:
            last.pop(key, None)  # a resumed op begins with what it finds
        elif found := _UNLOAD.match(entry.detail):
            last[key] = found[1]
            yield from _answer(entry, found[1], held[entry.node_uid])
        elif last.get(key) == BUSY and _goes_on(entry):
            last.pop(key)
            what = entry.detail or "ended as done"
            yield _misdeed(entry, f"went on ({what}) though the kernel had said that it is in use")


def _goes_on(entry: Entry) -> bool:
    if entry.phase == EntryPhase.FINISHED:
        return entry.result is not None and entry.result.outcome == Outcome.DONE
    return entry.phase == EntryPhase.STEP and not entry.detail.startswith("unload")


def _answer(entry: Entry, said: str, held: list[DeviceHold]) -> Iterator[AuditFinding]:
    if said not in (OUT, BUSY, NONE):
        yield _misdeed(entry, f"unloaded as {said!r}, which is no answer of a kernel")
    if said != OUT:
        return
    for one in held:
        if one.since < entry.time and (one.until is None or entry.time < one.until):
            yield _misdeed(entry, f"unloaded the driver under {one.holder or 'a process'}")


def _misdeed(entry: Entry, what: str) -> AuditFinding:
    message = f"the driver agent of {entry.node}, at {entry.command} {entry.order}, {what}"
    return agent_violation("I5", entry, message)
