"""The golden files: encoded examples of every form, which every later version must read.

`python -m tests.contracts.goldens` writes missing files and never changes existing ones. A form
that gains a field gets another example, named `<form>@<what is new>`; the old file stays, because
old senders stay.
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
"""The required fields of version 1. The list is frozen except for new structs."""

EXAMPLES: dict[str, Example] = {
    **examples_commands.EXAMPLES,
    **examples_reports.EXAMPLES,
    **examples_telemetry.EXAMPLES,
    **examples_events.EXAMPLES,
    **examples_queries.EXAMPLES,
    **examples_stored.EXAMPLES,
}
"""Examples by the name of the golden file."""

_FORM = {form.name: form for form in FORMS}


def form_of(name: str) -> MessageForm:
    """Return the form of a golden file."""
    return _FORM[name.partition("@")[0]]


def path_of(name: str) -> Path:
    return GOLDEN / f"{name}.{'msgpack' if form_of(name).is_binary else 'json'}"


def read(form: MessageForm, data: bytes) -> Example:
    """Decode a message of this form and its body, or raise `MalformedMessage`."""
    if form.is_binary:
        return Example(telemetry.decode(data))
    whole = message.decode(form.message, data)
    return Example(whole, whole.open() if form.body else None)


def write(form: MessageForm, whole: Any) -> bytes:
    return telemetry.encode(whole) if form.is_binary else msgspec.json.encode(whole)


def write_missing() -> list[str]:
    """Write the missing golden files and return their names."""
    written = [name for name in EXAMPLES if not path_of(name).exists()]
    for name in written:
        path_of(name).write_bytes(write(form_of(name), EXAMPLES[name].message))
    return written


if __name__ == "__main__":
    write_missing()
