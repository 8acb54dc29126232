"""Which answers at a gate the commands of the driver agent justify."""

import pytest

from libs.audit import LostJournal
from libs.contracts.commands import Command, CommandBody, Idle, Order, Proven, Quiesce, Swap
from libs.contracts.journal import Entry, EntryPhase
from libs.host.gate import GateAnswer
from tests.component.campaign.gate_answers import StoredCommand, unjustified_answers

PROVEN = Idle(proven=Proven(label="d-1", kernel="6.8"))
ANSWER = GateAnswer(pod_uid="pod-1", label="d-1", at=20.0)
LOST = LostJournal(node_uid="node-1", component="driver", time=18.0)


def stored(body: CommandBody, op: int, *, at: float, uid: str = "node-1") -> StoredCommand:
    command = Command.of(
        body, node="a", node_uid=uid, boot_id="boot-1", epoch=1, order=Order(1, op), deadline=2e9
    )
    return StoredCommand(at, command)


def entry(
    op: int,
    *,
    at: float,
    uid: str = "node-1",
    component: str = "driver",
    phase: EntryPhase = EntryPhase.STARTED,
) -> Entry:
    return Entry(
        node="a",
        node_uid=uid,
        boot_id="boot-1",
        component=component,
        epoch=1,
        token=1,
        op=op,
        command="idle",
        phase=phase,
        time=at,
    )


@pytest.mark.parametrize(
    ("commands", "entries"),
    [
        ([stored(PROVEN, 1, at=10)], [entry(1, at=11)]),
        ([stored(PROVEN, 1, at=10)], []),
        ([stored(Swap(label="d-1"), 1, at=10)], [entry(1, at=11)]),
        ([stored(Idle(), 1, at=10), stored(PROVEN, 2, at=19)], [entry(1, at=11)]),
        ([stored(PROVEN, 1, at=10), stored(Idle(), 2, at=15)], [entry(1, at=11)]),
        ([stored(PROVEN, 1, at=10)], [entry(1, at=11), entry(2, at=20)]),
        ([stored(PROVEN, 1, at=10)], [entry(2, at=15, phase=EntryPhase.STEP)]),
        ([stored(PROVEN, 1, at=10)], [entry(2, at=15, component="validator")]),
        ([stored(PROVEN, 1, at=10)], [entry(2, at=15, uid="node-0")]),
    ],
    ids=[
        "idle",
        "accepted, not begun",
        "swap",
        "the next is accepted",
        "the next is not begun",
        "the next begins at that moment",
        "the next is only seen",
        "another component",
        "an earlier Node",
    ],
)
def test_an_answer_is_justified(commands: list[StoredCommand], entries: list[Entry]) -> None:
    assert not list(unjustified_answers([ANSWER], commands=commands, entries=entries))


@pytest.mark.parametrize(
    ("commands", "entries", "ending"),
    [
        ([], [], "of d-1"),
        ([stored(PROVEN, 1, at=21)], [], "of d-1"),
        ([stored(Idle(), 1, at=10), stored(Quiesce(), 2, at=11)], [], "of d-1"),
        ([stored(Swap(label="d-2"), 1, at=10)], [entry(1, at=11)], "after idle 1.1 had begun"),
        (
            [stored(PROVEN, 1, at=10), stored(Idle(), 2, at=14)],
            [entry(1, at=11), entry(2, at=15)],
            "after idle 1.2 had begun",
        ),
        (
            [stored(PROVEN, 1, at=10), stored(Idle(), 2, at=10)],
            [entry(1, at=11), entry(2, at=11)],
            "after idle 1.2 had begun",
        ),
    ],
    ids=[
        "no command",
        "a later command",
        "no proof",
        "another label",
        "a proof withdrawn",
        "at once",
    ],
)
def test_an_answer_is_not_justified(
    commands: list[StoredCommand], entries: list[Entry], ending: str
) -> None:
    ((answer, reason),) = unjustified_answers([ANSWER], commands=commands, entries=entries)
    assert answer is ANSWER
    assert reason.startswith("the gate opened for pod pod-1 of d-1")
    assert reason.endswith(ending)


def test_an_agent_that_lost_its_journal_may_take_the_command_in_the_slot() -> None:
    commands = [stored(PROVEN, 1, at=10)]
    entries = [entry(2, at=15)]
    assert list(unjustified_answers([ANSWER], commands=commands, entries=entries))
    assert not list(
        unjustified_answers([ANSWER], commands=commands, entries=entries, lost_journals=[LOST])
    )
