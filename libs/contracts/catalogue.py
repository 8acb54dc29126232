"""Everything that has a form on the wire or at rest, listed once.

docs/wire.md is written from this list, and the golden tests walk over it: what is missing here has
no page, and what is here without a golden file fails the tests. It knows which writers and readers
a plane is for, not what a server is told to permit.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.contracts import (
    beats,
    commands,
    events,
    journal,
    node,
    queries,
    reports,
    rollout,
    streams,
    subjects,
    telemetry,
)
from libs.contracts.identities import CHECK_SENDERS, CLUSTER_WRITERS, COMPONENTS, Writer
from libs.contracts.message import Bodies

SERVICES = tuple(writer for writer in CLUSTER_WRITERS if writer is not Writer.CTL)
"""The cluster roles."""


class MessageForm(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that has bytes: an envelope with one kind of body, or a message without one."""

    name: str
    """Of its golden file too."""
    message: type[Any]
    body: type[Any] | None = None
    kind: str = ""
    parties: tuple[Writer, ...] = ()
    """Of the plane's components or writers, those that this kind is for; empty means all."""

    @property
    def is_binary(self) -> bool:
        """Whether it is msgpack; everything else is JSON."""
        return self.message is telemetry.Batch

    @property
    def content(self) -> type[Any]:
        """The struct that tells this form from the others of its plane."""
        return self.body or self.message


class Plane(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of subject: who writes it, who reads it, what carries it, and what it carries."""

    subject: type[subjects.Subject]
    writers: tuple[Writer, ...]
    readers: tuple[Writer, ...]
    stream: streams.Stream | None = None
    """None: core NATS, nothing is kept."""
    means: str
    forms: tuple[MessageForm, ...]

    @property
    def name(self) -> str:
        """The token in the subject."""
        return self.subject.plane

    @property
    def shape(self) -> str:
        """The subject with a word in angle brackets for each part; what may be left out, in [ ]."""
        return f"{subjects.ROOT}.{self.name}.{_parts(self.subject)}"


def _parts(subject: type[subjects.Subject]) -> str:
    text = ""
    for field in msgspec.structs.fields(subject):
        part = f".<{field.name}>"
        text += part if field.required else f"[{part}]"
    return text.removeprefix(".")


def _forms(
    plane: str,
    message: type[Any],
    bodies: Bodies[Any, Any],
    parties: Mapping[Any, tuple[Writer, ...]] | None = None,
) -> tuple[MessageForm, ...]:
    return tuple(
        MessageForm(
            name=f"{plane}.{kind.value}",
            message=message,
            body=body,
            kind=kind.value,
            parties=(parties or {}).get(kind, ()),
        )
        for kind, body in bodies.kinds.items()
    )


_COMMANDED = {
    commands.CommandKind.SWAP: (Writer.DRIVER,),
    commands.CommandKind.INSTALL: (Writer.DRIVER,),
    commands.CommandKind.VALIDATE: (Writer.VALIDATOR,),
}
_CHECKED = dict.fromkeys(commands.CheckKind, (Writer.DRIVER,))
_REPORTED = {
    reports.StateKind.HOLDERS: (Writer.DRIVER,),
    reports.StateKind.PREFLIGHT: (Writer.DRIVER,),
    reports.StateKind.USAGE: (Writer.DRIVER,),
    reports.StateKind.EVIDENCE: (Writer.VALIDATOR,),
}
_HAPPENED = dict.fromkeys(
    (
        events.EventKind.STEP,
        events.EventKind.WAIT,
        events.EventKind.GRANT,
        events.EventKind.ROLLOUT,
        events.EventKind.EVICTION,
        events.EventKind.EDIT,
        events.EventKind.LEADER,
    ),
    (Writer.SCHEDULER,),
)


def _asked() -> tuple[MessageForm, ...]:
    forms: list[MessageForm] = []
    for verb, (question, answer) in queries.QUERIES.items():
        forms.append(
            MessageForm(name=f"ask.{verb.value}.question", message=question, kind=verb.value)
        )
        forms.append(MessageForm(name=f"ask.{verb.value}.answer", message=answer, kind=verb.value))
    return (*forms, MessageForm(name="ask.problem", message=queries.QueryError))


PLANES = (
    Plane(
        subject=subjects.Command,
        writers=(Writer.SCHEDULER,),
        readers=(*COMPONENTS, Writer.SCHEDULER, Writer.DRIVER_CLUSTER),
        stream=streams.COMMANDS,
        means="the slot: what this component of this node must do now",
        forms=_forms("command", commands.Command, commands.COMMANDS, _COMMANDED),
    ),
    Plane(
        subject=subjects.Check,
        writers=CHECK_SENDERS,
        readers=(*COMPONENTS, Writer.SCHEDULER),
        stream=streams.COMMANDS,
        means="a read-only question to a component; the answer is a report that names its id",
        forms=_forms("check", commands.Check, commands.CHECKS, _CHECKED),
    ),
    Plane(
        subject=subjects.State,
        writers=COMPONENTS,
        readers=SERVICES,
        stream=streams.STATE,
        means="the last report of a kind; the answer to a check ends in its asker",
        forms=_forms("state", reports.Report, reports.REPORTS, _REPORTED),
    ),
    Plane(
        subject=subjects.Beat,
        writers=COMPONENTS,
        readers=SERVICES,
        means="alive, and with which kinds it knows; silence is judged by the receiver's clock",
        forms=(MessageForm(name="beat", message=beats.Beat),),
    ),
    Plane(
        subject=subjects.Telemetry,
        writers=(Writer.TELEMETRY,),
        readers=(Writer.TELEMETRY_CLUSTER,),
        means="measurements in numbered batches, not acknowledged; gaps are counted",
        forms=(MessageForm(name="telemetry", message=telemetry.Batch),),
    ),
    Plane(
        subject=subjects.Event,
        writers=(*COMPONENTS, *SERVICES),
        readers=(Writer.CTL, Writer.SCHEDULER),
        stream=streams.EVENTS,
        means="what happened: for people, audits and replay; nothing is decided from it",
        forms=_forms("event", events.Event, events.EVENTS, _HAPPENED),
    ),
    Plane(
        subject=subjects.Query,
        writers=(Writer.CTL,),
        readers=SERVICES,
        means="a read-only question to a service, answered into the asker's inbox",
        forms=_asked(),
    ),
)
"""Every plane that anybody publishes on."""

NOTIFY_SHAPES = tuple(
    f"{subjects.NOTIFY_TO.removesuffix('$1.>')}{subject.plane}.{_parts(subject)}"
    for subject in (subjects.Command, subjects.Check)
)
"""Where nats-server pokes: it alone writes there, and the content is never acted on."""


class StoredForm(msgspec.Struct, frozen=True, kw_only=True):
    """What is no message but is read by other processes and later versions all the same."""

    form: MessageForm
    kept: str
    """Where, for people."""


STORED_FORMS = (
    StoredForm(
        form=MessageForm(name="node.lease", message=node.NodeLease),
        kept=f"annotation `{node.LEASE_ANNOTATION}` of the Node",
    ),
    StoredForm(
        form=MessageForm(name="node.record", message=node.NodeRecord),
        kept=f"annotation `{node.RECORD_ANNOTATION}` of the Node",
    ),
    StoredForm(
        form=MessageForm(name="rollout.spec", message=rollout.RolloutSpec),
        kept=f"`spec` of the `{rollout.KIND}` ({rollout.GROUP}/{rollout.VERSION})",
    ),
    StoredForm(
        form=MessageForm(name="rollout.status", message=rollout.RolloutStatus),
        kept=f"`status` of the `{rollout.KIND}` ({rollout.GROUP}/{rollout.VERSION})",
    ),
    StoredForm(
        form=MessageForm(name="journal.revision", message=journal.Revision),
        kept="the audit's journal of the API server, one line each",
    ),
    StoredForm(
        form=MessageForm(name="journal.entry", message=journal.Entry),
        kept="the journal of an agent on its node, one line each",
    ),
)
"""Everything else that has a golden file."""

FORMS = (*(form for plane in PLANES for form in plane.forms), *(item.form for item in STORED_FORMS))
"""Everything that has a golden file."""
