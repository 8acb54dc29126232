"""The generated parts of docs/wire.md: planes, inboxes, streams, commands to type, messages."""

from collections.abc import Iterable
from enum import EnumType
from typing import Any, cast

import msgspec
from struct_docs import GOLDEN, anchors, example, fields, heading, table

from libs.contracts import catalogue, subjects
from libs.contracts.catalogue import FORMS, NOTIFY_SHAPES, PLANES, STORED_FORMS, MessageForm, Plane
from libs.contracts.identities import COMPONENTS, Identity, Writer
from libs.contracts.subjects import DAY, STREAMS, Stream

CLUSTER, NODE = "default", "gpu-1.rack-7.example"


def _writers(writers: Iterable[Writer]) -> str:
    """Return the writers as a list; all node components or all cluster roles are one word."""
    left, words = list(writers), list[str]()
    for word, group in (("components", COMPONENTS), ("cluster roles", catalogue.SERVICES)):
        if set(group) <= set(left):
            words.append(word)
            left = [writer for writer in left if writer not in group]
    return ", ".join((*words, *(f"`{writer}`" for writer in left)))


def _title(form: MessageForm) -> str:
    plane, _, rest = form.name.partition(".")
    kind, _, part = rest.partition(".")
    return f"`{kind or plane}`" + (f": the {part}" if part else "")


def _form(form: MessageForm, plane: Plane) -> list[str]:
    lines = heading(4, _title(form), form.content)
    if form.parties:
        direction = "To" if plane.stream is subjects.COMMANDS else "From"
        lines += [f"{direction} {_writers(form.parties)} alone.", ""]
    return lines + fields(form.content) + example(form)


def _plane(plane: Plane) -> list[str]:
    first, *_ = plane.forms
    lines = [f'<a id="{plane.name}"></a>', f"### {plane.name}", "", f"`{plane.shape}`", ""]
    lines += [f"{plane.description[0].upper()}{plane.description[1:]}.", ""]
    if first.name == plane.name:
        return [*lines, *fields(first.message), *example(first)]
    if first.body:
        lines += heading(4, f"The envelope: {first.message.__name__}", first.message)
        lines += fields(first.message)
    return lines + [line for form in plane.forms for line in _form(form, plane)]


def planes() -> list[str]:
    """Return a table of the planes, and of `notify`, which only the server writes."""
    rows = [
        [
            f"[`{plane.name}`](#{plane.name})",
            f"`{plane.shape}`",
            _writers(plane.writers),
            _writers(plane.readers),
            f"stream [{plane.stream.name}](#streams)" if plane.stream else "core NATS",
        ]
        for plane in PLANES
    ]
    shapes = "<br>".join(f"`{shape}`" for shape in NOTIFY_SHAPES)
    rows.insert(2, ["`notify`", shapes, "nats-server", _writers(COMPONENTS), "core NATS"])
    return table(("Plane", "Subject", "Written by", "Read by", "Carried by"), rows)


def _limits(stream: Stream) -> list[str]:
    retention = f"{stream.per_subject} per subject, {stream.max_bytes // 1024**2} MiB"
    if stream.max_age:
        retention += f", {stream.max_age / DAY:g} days"
    options = [
        *(["refuses when full"] if stream.refuses_when_full else []),
        *(["compressed"] if stream.compressed else []),
        *(["no purge"] if stream.deny_purge else []),
        *([f"copied from `{stream.notify[0]}` to `{stream.notify[1]}`"] if stream.notify else []),
    ]
    patterns = "<br>".join(f"`{pattern}`" for pattern in stream.subjects)
    size = f"{stream.max_message // 1024} KiB"
    return [
        stream.name,
        stream.description,
        patterns,
        retention,
        size,
        str(stream.max_consumers),
        ", ".join(options),
    ]


def stream_limits() -> list[str]:
    """Return a table of the streams with their limits."""
    head = ("Stream", "Has", "Subjects", "Keeps", "Message", "Consumers", "Also")
    return table(head, map(_limits, STREAMS))


def inboxes() -> list[str]:
    """Return a table of the inbox of each identity."""
    rows = [
        [f"`{writer}`", f"`{subjects.inbox(Identity(writer=writer, node=node))}`"]
        for writer in Writer
        for node in [NODE if writer in COMPONENTS else ""]
    ]
    return table(("Identity", "Its inbox"), rows)


def commands() -> list[str]:
    """Return a shell block with a `nats` command for each common question."""
    state = subjects.State(cluster=CLUSTER, node="*", component="*", kind="*")
    facts = msgspec.structs.replace(state, node=NODE, component="driver", kind="facts")
    slot = subjects.Command(cluster=CLUSTER, node=NODE, component="driver")
    slots = msgspec.structs.replace(slot, node="*", component="*")
    beats = subjects.Beat(cluster=CLUSTER, node=NODE, component="*")
    events = subjects.Event(cluster=CLUSTER, node=NODE, writer="*", kind="*")
    why = subjects.Query(cluster=CLUSTER, service="scheduler", verb="why")
    question = (GOLDEN / "ask.why.question.json").read_text()
    inbox = f"--inbox-prefix={subjects.inbox(Identity(writer=Writer.CTL))}"
    examples = (
        ("what every component reports, as it reports it", f"nats sub '{state}'"),
        ("its answers to checks have one token more", f"nats sub '{state}.*'"),
        (
            "the last report of one kind",
            f"nats stream get {subjects.STATE.name} --last-for '{facts}'",
        ),
        ("who is alive on one node (up to a minute)", f"nats sub '{beats}'"),
        ("what the driver agent is told to do: its slot, by direct get",
         f"nats req --raw '{subjects.direct_get(subjects.COMMANDS.name, str(slot))}' ''"),
        ("each time that a slot is written", f"nats sub '{subjects.notify(slots)}'"),
        ("what happened on one node in the last hour, and from now on",
         f"nats {inbox} sub \\\n  --stream {subjects.EVENTS.name} --since 1h '{events}'"),
        ("which services answer questions", f"nats {inbox} micro ls"),
        ("why a node is not where its policy wants it",
         f"nats {inbox} req --raw \\\n  '{why}' \\\n  '{question}'"),
    )  # fmt: skip
    lines = ["```sh"]
    for comment, command in examples:
        lines += [f"# {comment}", command, ""]
    return [*lines[:-1], "```"]


def messages() -> list[str]:
    """Return the messages of each plane."""
    return [line for plane in PLANES for line in _plane(plane)]


def at_rest() -> list[str]:
    """Return the forms that are stored instead of sent."""
    lines: list[str] = []
    for item in STORED_FORMS:
        form = item.form
        lines += [*heading(3, f"`{form.name}`", form.content), f"Kept as {item.description}.", ""]
        lines += fields(form.content) + example(form)
    return lines


def _nested() -> list[type[Any]]:
    """Return the structs and enums that are neither a message nor a body."""
    described = {form.content for form in FORMS} | {plane.forms[0].message for plane in PLANES}
    return sorted((cls for cls in anchors() if cls not in described), key=lambda cls: cls.__name__)


def parts() -> list[str]:
    """Return the structs within messages."""
    structs = [cls for cls in _nested() if not isinstance(cls, EnumType)]
    return [line for cls in structs for line in (*heading(3, cls.__name__, cls), *fields(cls))]


def words() -> list[str]:
    """Return the enums within messages."""
    lines: list[str] = []
    for cls in _nested():
        if isinstance(cls, EnumType):
            members = cast(Iterable[Any], cls)
            lines += heading(3, cls.__name__, cls)
            lines += [", ".join(f"`{member.value}`" for member in members), ""]
    return lines
