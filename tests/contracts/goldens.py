"""The golden files: an encoded example of every form, which every later version must read.

To add a form, write its file by hand. A form that gains a field gets another file, named
`<form>@<what is new>`; the old file stays, because old senders stay.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from libs.contracts import message, telemetry
from libs.contracts.catalogue import FORMS, MessageForm

GOLDEN = Path(__file__).parent / "golden" / f"v{message.MAJOR}"
REQUIRED = GOLDEN / "required.json"
"""The required fields of version 1. The list is frozen except for new structs."""

_FORM = {form.name: form for form in FORMS}


class Example(NamedTuple):
    """The decoded content of a golden file: a message, with its body if it is an envelope."""

    message: Any
    body: Any = None


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


EXAMPLES = {
    path.stem: read(form_of(path.stem), path.read_bytes())
    for path in sorted(GOLDEN.iterdir())
    if path != REQUIRED
}
"""Examples by the name of the golden file."""
