"""The golden files: the bytes of every form of version 1, which every later reader must read.

A golden file is written once and never again: `python -m tests.contracts.goldens` adds what is
missing and touches nothing that is there. A form that grows a field gets one more example, named
`<form>@<what is new>`; the old file stays, because old senders stay.
"""

from pathlib import Path
from typing import Any

import msgspec

from libs.contracts import message, telemetry
from libs.contracts.catalogue import FORMS, MessageForm
from tests.contracts import (
    examples_commands,
    examples_events,
    examples_queries,
    examples_reports,
    examples_stored,
    examples_telemetry,
)
from tests.contracts.examples import Example

GOLDEN = Path(__file__).parent / "golden" / f"v{message.MAJOR}"
REQUIRED = GOLDEN / "required.json"
"""Which fields of version 1 have no default, frozen: there will never be more."""

EXAMPLES: dict[str, Example] = {
    **examples_commands.EXAMPLES,
    **examples_reports.EXAMPLES,
    **examples_telemetry.EXAMPLES,
    **examples_events.EXAMPLES,
    **examples_queries.EXAMPLES,
    **examples_stored.EXAMPLES,
}
"""By the name of the golden file."""

_FORM = {form.name: form for form in FORMS}


def form_of(name: str) -> MessageForm:
    """The form that a golden file shows."""
    return _FORM[name.partition("@")[0]]


def path_of(name: str) -> Path:
    """Where a golden file is."""
    return GOLDEN / f"{name}.{'msgpack' if form_of(name).is_binary else 'json'}"


def read(form: MessageForm, data: bytes) -> Example:
    """Read bytes as this form, body and all, or raise `Unreadable`."""
    if form.is_binary:
        return Example(telemetry.decode(data))
    whole = message.decode(form.message, data)
    return Example(whole, whole.open() if form.body else None)


def write(form: MessageForm, whole: Any) -> bytes:
    """The bytes of a message of this form."""
    return telemetry.encode(whole) if form.is_binary else msgspec.json.encode(whole)


def write_missing() -> list[str]:
    """Write the golden files that are not there yet."""
    written = [name for name in EXAMPLES if not path_of(name).exists()]
    for name in written:
        path_of(name).write_bytes(write(form_of(name), EXAMPLES[name].message))
    return written


if __name__ == "__main__":
    write_missing()
