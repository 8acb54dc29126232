"""Judge each answer at a gate by the commands of the node's driver agent (docs/states.md#gate-3).

An answer is justified by a command that admits a pod of its label: an `idle` that names the label
as proven, or a `swap` to it. The command was in the slot before the answer, and the agent had not
begun a later one.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from libs.audit import LostJournal
from libs.contracts.commands import Command, Idle, Swap
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry, EntryPhase
from libs.host.gate import GateAnswer


class StoredCommand(NamedTuple):
    """A command that was written to the slot of a driver agent."""

    time: float
    command: Command


def unjustified_answers(
    answers: Iterable[GateAnswer],
    *,
    commands: Iterable[StoredCommand],
    entries: Iterable[Entry],
    lost_journals: Iterable[LostJournal] = (),
) -> Iterator[tuple[GateAnswer, str]]:
    """Yield the answers of one node that no command justifies, each with the reason.

    `commands` and `entries` are those of this node, the entries of an agent in the order in which
    it wrote them. An agent that lost its journal knows nothing of what it had begun.
    """
    started = [
        entry
        for entry in entries
        if entry.component == Writer.DRIVER and entry.phase is EntryPhase.STARTED
    ]
    losses = [loss for loss in lost_journals if loss.component == Writer.DRIVER]
    admitting = [stored for stored in commands if _admitted_label(stored.command)]
    for answer in answers:
        begun = _last_begun(started, losses, answer.at)
        if not any(
            stored.time <= answer.at
            and _admitted_label(stored.command) == answer.label
            and not _is_earlier(stored.command, begun)
            for stored in admitting
        ):
            since = "" if begun is None else f" after {begun.command} {begun.order} had begun"
            yield answer, f"the gate opened for pod {answer.pod_uid} of {answer.label}{since}"


def _admitted_label(command: Command) -> str:
    match command.open():
        case Idle(proven=proven) if proven is not None:
            return proven.label
        case Swap(label=label):
            return label
        case _:
            return ""


def _last_begun(started: list[Entry], losses: list[LostJournal], at: float) -> Entry | None:
    """Return the start of the last command before this time that the agent then knew of."""
    last = next((entry for entry in reversed(started) if entry.time < at), None)
    if last is None or any(
        loss.node_uid == last.node_uid and last.time <= loss.time <= at for loss in losses
    ):
        return None
    return last


def _is_earlier(command: Command, begun: Entry | None) -> bool:
    """Report whether the command came before the one that the agent had begun.

    The orders of two Nodes of one name cannot be compared.
    """
    return begun is not None and command.node_uid == begun.node_uid and command.order < begun.order
