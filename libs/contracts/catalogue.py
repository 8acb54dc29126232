"""Catalogue of every message and every stored record.

docs/wire.md is generated from it, and every form in it needs a golden file.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.contracts import (
    commands,
    events,
    journal,
    lengths,
    node,
    queries,
    reports,
    rollout,
    senders,
    subjects,
    telemetry,
)
from libs.contracts.identities import CHECK_SENDERS, CLUSTER_WRITERS, COMPONENTS, Writer
from libs.contracts.message import Bodies

SERVICES = tuple(writer for writer in CLUSTER_WRITERS if writer not in (Writer.SIGN_IN, Writer.CTL))
"""The writers of a cluster that take part in planes, without people."""


class MessageForm(msgspec.Struct, frozen=True, kw_only=True):
    """An encoded form: an envelope with one kind of body, or a message without a body."""

    name: str
    """Also the name of the golden file."""
    message: type[Any]
    body: type[Any] | None = None
    kind: str = ""
    parties: tuple[Writer, ...] = ()
    """The readers of a command or check, or the writers of a report or event, of this kind; empty
    means all of the plane."""

    @property
    def is_binary(self) -> bool:
        """Whether the form is msgpack; all others are JSON."""
        return self.message is telemetry.Batch

    @property
    def content(self) -> type[Any]:
        """The struct that distinguishes this form from the others of its plane."""
        return self.body or self.message


class Plane(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of subject, with its writers, readers, stream and message forms."""

    subject: type[subjects.Subject]
    writers: tuple[Writer, ...]
    readers: tuple[Writer, ...]
    stream: subjects.Stream | None = None
    """None means core NATS: messages are not stored."""
    description: str
    forms: tuple[MessageForm, ...]

    @property
    def name(self) -> str:
        """The token in the subject."""
        return self.subject.plane

    @property
    def shape(self) -> str:
        """The subject with a placeholder for each part; optional parts are in brackets."""
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


_COMMAND_READERS = {
    commands.CommandKind.SWAP: (Writer.DRIVER,),
    commands.CommandKind.INSTALL: (Writer.DRIVER,),
    commands.CommandKind.MIG: (Writer.DRIVER,),
    commands.CommandKind.VALIDATE: (Writer.VALIDATOR,),
}
_CHECK_READERS = {
    commands.CheckKind.PREFLIGHT: (Writer.DRIVER,),
    commands.CheckKind.HOLDERS: (Writer.DRIVER,),
}
_REPORT_WRITERS = {**senders.ANSWER_WRITERS, **senders.REPORT_WRITERS}
_EVENT_WRITERS = tuple(
    writer for writer in Writer if any(writer in each for each in senders.EVENT_WRITERS.values())
)


def _query_forms() -> tuple[MessageForm, ...]:
    forms = [
        MessageForm(name=f"ask.{verb.value}.{part}", message=message, kind=verb.value)
        for verb, messages in queries.QUERIES.items()
        for part, message in zip(("question", "answer"), messages, strict=True)
    ]
    return (*forms, MessageForm(name="ask.problem", message=queries.QueryError))


PLANES = (
    Plane(
        subject=subjects.Command,
        writers=(Writer.SCHEDULER,),
        readers=(*COMPONENTS, Writer.SCHEDULER, Writer.DRIVER_CLUSTER),
        stream=subjects.COMMANDS,
        description="the slot: the current command of one component of one node",
        forms=_forms("command", commands.Command, commands.COMMANDS, _COMMAND_READERS),
    ),
    Plane(
        subject=subjects.Check,
        writers=CHECK_SENDERS,
        readers=(*COMPONENTS, Writer.SCHEDULER, Writer.DRIVER_CLUSTER),
        stream=subjects.COMMANDS,
        description="a read-only question to a component; the answer has its id: a report, or a"
        " page of the journal",
        forms=_forms("check", commands.Check, commands.CHECKS, _CHECK_READERS),
    ),
    Plane(
        subject=subjects.State,
        writers=COMPONENTS,
        readers=SERVICES,
        stream=subjects.STATE,
        description="the last report of each kind; answers to a check end with its sender",
        forms=_forms("state", reports.Report, reports.REPORTS, _REPORT_WRITERS),
    ),
    Plane(
        subject=subjects.Lengths,
        writers=(Writer.SCHEDULER,),
        readers=(Writer.SCHEDULER,),
        stream=subjects.STATE,
        description="how long the jobs of a pool ran, for plans; written every hour, and learned"
        " again if it is lost",
        forms=(MessageForm(name="lengths", message=lengths.JobLengths),),
    ),
    Plane(
        subject=subjects.Beat,
        writers=COMPONENTS,
        readers=SERVICES,
        description="heartbeats with the known kinds; silence is measured by the receiver's clock",
        forms=(MessageForm(name="beat", message=reports.Beat),),
    ),
    Plane(
        subject=subjects.Telemetry,
        writers=(Writer.TELEMETRY,),
        readers=(Writer.TELEMETRY_CLUSTER,),
        description="metrics in numbered batches without acknowledgement; gaps are counted",
        forms=(MessageForm(name="telemetry", message=telemetry.Batch),),
    ),
    Plane(
        subject=subjects.Journal,
        writers=COMPONENTS,
        readers=(Writer.SCHEDULER,),
        description="pages of a component's journal, as answers to checks of the audit",
        forms=(MessageForm(name="journal", message=journal.JournalPage),),
    ),
    Plane(
        subject=subjects.Event,
        writers=_EVENT_WRITERS,
        readers=(Writer.CTL, Writer.SCHEDULER),
        stream=subjects.EVENTS,
        description="events for people, audits and replay; no decision depends on them",
        forms=_forms("event", events.Event, events.EVENTS, senders.EVENT_WRITERS),
    ),
    Plane(
        subject=subjects.Query,
        writers=(Writer.CTL,),
        readers=SERVICES,
        description="a read-only question to a service, answered to the sender's inbox",
        forms=_query_forms(),
    ),
)
"""Every plane that clients publish on."""

NOTIFY_SHAPES = tuple(
    f"{subjects.NOTIFY_TO.removesuffix('$1.>')}{subject.plane}.{_parts(subject)}"
    for subject in (subjects.Command, subjects.Check)
)
"""Subjects of slot notifications. Only nats-server publishes them; their content is ignored."""


class StoredForm(msgspec.Struct, frozen=True, kw_only=True):
    """A stored record that other processes and later versions read."""

    form: MessageForm
    description: str
    """A description of where the record is stored."""


STORED_FORMS = (
    StoredForm(
        form=MessageForm(name="node.lease", message=node.NodeLease),
        description=f"annotation `{node.LEASE_ANNOTATION}` of the Node",
    ),
    StoredForm(
        form=MessageForm(name="node.record", message=node.NodeRecord),
        description=f"annotation `{node.RECORD_ANNOTATION}` of the Node",
    ),
    StoredForm(
        form=MessageForm(name="node.validation-pod", message=node.ValidationPod),
        description=f"annotation `{node.VALIDATION_POD_ANNOTATION}` of the Node",
    ),
    StoredForm(
        form=MessageForm(name="rollout.spec", message=rollout.RolloutSpec),
        description=f"`spec` of the `{rollout.KIND}` ({rollout.GROUP}/{rollout.VERSION})",
    ),
    StoredForm(
        form=MessageForm(name="rollout.status", message=rollout.RolloutStatus),
        description=f"`status` of the `{rollout.KIND}` ({rollout.GROUP}/{rollout.VERSION})",
    ),
    StoredForm(
        form=MessageForm(name="journal.revision", message=journal.Revision),
        description="the audit's journal of the API server, one record per line",
    ),
    StoredForm(
        form=MessageForm(name="journal.entry", message=journal.Entry),
        description="the journal of an agent on its node, one record per line",
    ),
)
"""Stored records; they have golden files too."""

FORMS = (*(form for plane in PLANES for form in plane.forms), *(item.form for item in STORED_FORMS))
"""All forms that have a golden file."""
