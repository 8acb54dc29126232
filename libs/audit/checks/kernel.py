"""I5: only the kernel decides whether a driver can be unloaded, and its answer is final.

The driver agent journals each attempt to unload as a step of its op. The detail of the step is
`unload: ` and one word, optionally followed by a blank or comma and more text: `ok` (the modules
are unloaded), `busy` (EBUSY) or `none` (no module was loaded).
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

UNLOADED: Final = "ok"
BUSY: Final = "busy"
NONE: Final = "none"
_Op = tuple[str, Order]
_UNLOAD: Final = re.compile(r"unload: *([a-z-]+)")


def unloads(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that after EBUSY an op only unloads again or fails, and never succeeds."""
    last: dict[_Op, str] = {}
    holds: dict[str, list[DeviceHold]] = defaultdict(list)
    for hold in case.journal.device_holds:
        holds[hold.node_uid].append(hold)
    for entry in case.entries:
        if entry.component != Writer.DRIVER:
            continue
        key = entry.node_uid, entry.order
        if entry.phase == EntryPhase.STARTED:
            last.pop(key, None)  # a resumed op starts over
        elif match := _UNLOAD.match(entry.detail):
            last[key] = match[1]
            yield from _check_answer(entry, match[1], holds[entry.node_uid])
        elif last.get(key) == BUSY and _continues(entry):
            last.pop(key)
            step = entry.detail or "ended as done"
            yield _violation(
                entry,
                f"continued ({step}) although the kernel had answered busy",
            )


def _continues(entry: Entry) -> bool:
    if entry.phase == EntryPhase.FINISHED:
        return entry.result is not None and entry.result.outcome == Outcome.DONE
    return entry.phase == EntryPhase.STEP and not entry.detail.startswith("unload")


def _check_answer(entry: Entry, answer: str, holds: list[DeviceHold]) -> Iterator[AuditFinding]:
    if answer not in (UNLOADED, BUSY, NONE):
        yield _violation(entry, f"unloaded as {answer!r}, which is no answer of the kernel")
    if answer != UNLOADED:
        return
    for hold in holds:
        if hold.since < entry.time and (hold.until is None or entry.time < hold.until):
            yield _violation(
                entry, f"unloaded the driver while {hold.holder or 'a process'} held the device"
            )


def _violation(entry: Entry, problem: str) -> AuditFinding:
    message = f"the driver agent of {entry.node}, at {entry.command} {entry.order}, {problem}"
    return agent_violation("I5", entry, message)
