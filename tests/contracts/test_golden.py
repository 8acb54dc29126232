"""The bytes of version 1 never change, and every kind has a golden file."""

import json
from typing import Any

import msgspec
import pytest

from libs.contracts import commands, events, queries, reports, subjects
from libs.contracts.catalogue import FORMS, PLANES
from tests.contracts import goldens, structs
from tests.contracts.goldens import EXAMPLES, REQUIRED, form_of, path_of


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_golden_file_decodes_to_its_example_and_encodes_to_the_same_bytes(name: str) -> None:
    form, data = form_of(name), path_of(name).read_bytes()
    assert goldens.read(form, data) == EXAMPLES[name]
    written = goldens.write(form, EXAMPLES[name].message)
    if form.is_binary:
        # Arrays also encode fields at their defaults; new fields are appended at the end.
        before = msgspec.msgpack.decode(data)
        data = msgspec.msgpack.encode([*before, *msgspec.msgpack.decode(written)[len(before) :]])
    assert written == data


@pytest.mark.parametrize("form", [form for form in FORMS if form.body], ids=lambda form: form.name)
def test_the_kind_of_an_envelope_follows_from_its_body(form: Any) -> None:
    assert EXAMPLES[form.name].message.kind == form.kind


def test_every_form_has_a_golden_file_and_every_golden_file_an_example() -> None:
    assert {form.name for form in FORMS} <= EXAMPLES.keys(), "add an example in tests/contracts"
    there = {path.name for path in goldens.GOLDEN.iterdir()} - {REQUIRED.name}
    assert there == {path_of(name).name for name in EXAMPLES}


def test_no_golden_file_is_missing() -> None:
    assert goldens.write_missing() == []


@pytest.mark.parametrize(
    ("words", "bodies"),
    [
        (commands.CommandKind, commands.COMMANDS.kinds),
        (commands.CheckKind, commands.CHECKS.kinds),
        (reports.StateKind, reports.REPORTS.kinds),
        (events.EventKind, events.EVENTS.kinds),
        (queries.QueryVerb, queries.QUERIES),
    ],
)
def test_every_kind_has_its_own_body_type(words: Any, bodies: dict[Any, Any]) -> None:
    assert set(bodies) == set(words)
    assert len(set(bodies.values())) == len(bodies)


def test_the_catalogue_lists_every_plane_and_kind_once() -> None:
    assert [plane.subject for plane in PLANES] == list(subjects.PLANES)
    names = [form.name for form in FORMS]
    assert len(set(names)) == len(names)
    kinds = {plane.name: [form.kind for form in plane.forms if form.body] for plane in PLANES}
    assert set(kinds["command"]) == {kind.value for kind in commands.CommandKind}
    assert set(kinds["check"]) == {kind.value for kind in commands.CheckKind}
    assert set(kinds["state"]) == {kind.value for kind in reports.StateKind}
    assert set(kinds["event"]) == {kind.value for kind in events.EventKind}


def test_the_examples_set_every_field() -> None:
    filled: dict[str, set[str]] = {}
    for message, body in EXAMPLES.values():
        for struct in (*structs.instances(message), *structs.instances(body)):
            seen = filled.setdefault(structs.name_of(type(struct)), set())
            for field in msgspec.structs.fields(struct):
                if getattr(struct, field.name) not in (structs.default_of(field), "", ()):
                    seen.add(field.name)
    empty = {
        structs.name_of(struct): sorted(
            set(struct.__struct_fields__) - filled.get(structs.name_of(struct), set())
        )
        for struct in structs.structs()
    }
    assert {name: fields for name, fields in empty.items() if fields} == {}


def test_new_fields_have_defaults() -> None:
    frozen = json.loads(REQUIRED.read_bytes())
    now = {
        structs.name_of(struct): [
            field.encode_name for field in msgspec.structs.fields(struct) if field.required
        ]
        for struct in structs.structs()
    }
    assert now == frozen, (
        "a field that is new needs a default, and one that was required stays so: older readers"
        f" would refuse the message. Only a new struct may be added to {REQUIRED.name}"
    )
