"""Compatibility of messages: they only grow within a major version; other versions are refused."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec
import pytest

from libs.contracts import message, queries, telemetry
from libs.contracts.message import MAJOR, MalformedMessage, Message, OpenEnum
from libs.contracts.waits import WaitCode
from tests.contracts import goldens
from tests.contracts import structs as shapes
from tests.contracts.goldens import EXAMPLES, form_of, path_of

JSON = [name for name in EXAMPLES if not form_of(name).is_binary]
ENVELOPES = [name for name in JSON if form_of(name).body]
VERSIONED = [name for name in JSON if isinstance(EXAMPLES[name].message, Message)]
NEW = "written-by-a-newer-version"


def _tree(name: str) -> Any:
    return msgspec.json.decode(path_of(name).read_bytes())


def _objects_of_structs(tree: Any, struct: Any) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that correspond to structs; plain maps are skipped."""
    if isinstance(struct, msgspec.Struct):
        yield tree
        for field in msgspec.structs.fields(struct):
            if field.encode_name in tree:
                yield from _objects_of_structs(tree[field.encode_name], getattr(struct, field.name))
    elif isinstance(struct, dict):
        for key, inner in struct.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _objects_of_structs(tree[key], inner)
    elif isinstance(struct, tuple | list):
        for part, inner in zip(tree, struct, strict=True):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield from _objects_of_structs(part, inner)


@pytest.mark.parametrize("name", JSON)
def test_unknown_fields_are_ignored_in_envelope_body_and_parts(name: str) -> None:
    tree, (whole, body) = _tree(name), EXAMPLES[name]
    grown = list(_objects_of_structs(tree, whole))
    if body is not None:
        grown += _objects_of_structs(tree["body"], body)
    for part in grown:
        part[NEW] = {"nested": [1, None, "x"]}
    read = goldens.read(form_of(name), msgspec.json.encode(tree))
    assert read.body == body
    if body is None:
        assert read.message == whole
    else:
        assert msgspec.structs.replace(read.message, body=whole.body) == whole


def _with_unknown_values(value: Any) -> Any:
    """Return the value with each member of an open enum replaced by an unknown one."""
    if isinstance(value, OpenEnum):
        return type(value)(NEW)
    if isinstance(value, msgspec.Struct):
        parts = {
            name: _with_unknown_values(getattr(value, name)) for name in value.__struct_fields__
        }
        return msgspec.structs.replace(value, **parts)
    if isinstance(value, dict):
        return {key: _with_unknown_values(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple | list):
        return type(value)(map(_with_unknown_values, value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value


@pytest.mark.parametrize("name", JSON)
def test_unknown_enum_values_survive_decoding_and_encoding(name: str) -> None:
    form, (whole, body) = form_of(name), EXAMPLES[name]
    structs: list[msgspec.Struct] = [part for part in (whole, body) if part is not None]
    for struct in structs:
        newer = msgspec.json.encode(_with_unknown_values(struct))
        read = message.decode(type(struct), newer)
        assert goldens.write(form, read) == newer


def test_an_unknown_enum_value_is_kept() -> None:
    code = WaitCode(NEW)
    assert (code, str(code), code.value, code.is_known) == (NEW, NEW, NEW, False)
    assert code == WaitCode(NEW)
    assert code != WaitCode("another")
    assert hash(code) == hash(NEW)
    assert all(known.is_known for known in WaitCode)


def test_every_enum_in_a_message_is_open() -> None:
    closed = {
        type(value).__name__
        for example in EXAMPLES.values()
        for part in filter(None, example)
        for struct in shapes.instances(part)
        for value in (getattr(struct, name) for name in struct.__struct_fields__)
        if isinstance(value, Enum) and not isinstance(value, OpenEnum)
    }
    assert closed == set()


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_unknown_kind_is_refused_with_a_message(name: str) -> None:
    form, whole = form_of(name), EXAMPLES[name].message
    newer = msgspec.structs.replace(whole, kind=type(whole.kind)(NEW))
    envelope = message.decode(form.message, message.encode(newer))
    with pytest.raises(MalformedMessage, match=f"kind '{NEW}' is not known to this process"):
        envelope.open()


@pytest.mark.parametrize("name", VERSIONED)
def test_another_major_version_is_refused_with_the_reason(name: str) -> None:
    tree = _tree(name)
    assert next(iter(tree)) == "v", "a person sees the version first"
    for version in (MAJOR + 1, 0):
        for other in ({**tree, "v": version}, {"v": version, "shape": "another"}):
            with pytest.raises(MalformedMessage, match=f"of version {version}; this process reads"):
                goldens.read(form_of(name), msgspec.json.encode(other))


def test_another_major_version_of_telemetry_is_refused_with_the_reason() -> None:
    _, *rest = msgspec.msgpack.decode(path_of("telemetry").read_bytes())
    for other in ([2, *rest], [2], [2, "another", "shape"]):
        with pytest.raises(
            MalformedMessage, match="Batch of version 2; this process reads version 1"
        ):
            telemetry.decode(msgspec.msgpack.encode(other))


def test_shorter_telemetry_of_an_older_sender_is_decoded() -> None:
    batch = EXAMPLES["telemetry"].message
    *head, (sample,) = msgspec.msgpack.decode(path_of("telemetry").read_bytes())
    fields = msgspec.structs.fields(telemetry.GpuSample)
    required = sum(field.required for field in fields)
    for length in range(required, len(fields) + 1):
        read = telemetry.decode(msgspec.msgpack.encode([*head, [sample[:length]]]))
        assert read.gpus == [telemetry.GpuSample(*sample[:length])]
        assert msgspec.structs.replace(read, gpus=batch.gpus) == batch
    with pytest.raises(MalformedMessage, match="at least length"):
        telemetry.decode(msgspec.msgpack.encode([*head, [sample[: required - 1]]]))


def test_longer_telemetry_of_a_newer_sender_is_decoded() -> None:
    written = telemetry.encode(EXAMPLES["telemetry@xids"].message)
    *head, (sample,), xids = msgspec.msgpack.decode(written)
    newer = msgspec.msgpack.encode([*head, [[*sample, 1, {"x": []}]], xids, "new", [None]])
    assert telemetry.decode(newer) == EXAMPLES["telemetry@xids"].message


@pytest.mark.parametrize("verb", queries.QUERIES)
def test_query_errors_and_answers_are_not_confused(
    verb: queries.QueryVerb,
) -> None:
    """Required fields distinguish them, because neither has a kind."""
    _, answer = queries.QUERIES[verb]
    with pytest.raises(MalformedMessage):
        message.decode(answer, path_of("ask.problem").read_bytes())
    with pytest.raises(MalformedMessage):
        message.decode(queries.QueryError, path_of(f"ask.{verb.value}.answer").read_bytes())


def test_fields_at_their_defaults_are_not_encoded() -> None:
    for struct in shapes.structs():
        if struct.__struct_config__.array_like:
            continue
        assert struct.__struct_config__.omit_defaults, shapes.name_of(struct)
        assert not struct.__struct_config__.forbid_unknown_fields, shapes.name_of(struct)
