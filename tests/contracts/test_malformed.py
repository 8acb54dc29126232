"""Data that is not a message raises `MalformedMessage` and nothing else."""

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.contracts.catalogue import FORMS, MessageForm
from libs.contracts.message import MalformedMessage
from tests.contracts import goldens
from tests.contracts.goldens import EXAMPLES, form_of, path_of

any_form = st.sampled_from(FORMS)
any_name = st.sampled_from(sorted(EXAMPLES))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _encodable(tree: object) -> bool:
    try:
        msgspec.json.encode(tree)
        msgspec.msgpack.encode(tree)
    except (OverflowError, UnicodeEncodeError):
        return False
    return True


encodable_json = any_json.filter(_encodable)
limited = settings(deadline=None, max_examples=60)


def _read(form: MessageForm, data: bytes) -> bool:
    """Report whether data is a message; any exception but `MalformedMessage` fails the test."""
    try:
        message = goldens.read(form, data).message
    except MalformedMessage:
        return False
    goldens.write(form, message)
    return True


@limited
@given(any_form, st.binary())
def test_random_bytes(form: MessageForm, data: bytes) -> None:
    _read(form, data)


@limited
@given(any_form, encodable_json)
def test_random_trees(form: MessageForm, tree: object) -> None:
    _read(form, msgspec.msgpack.encode(tree) if form.is_binary else msgspec.json.encode(tree))


@limited
@given(any_name, st.data())
def test_golden_files_with_changed_bytes(name: str, data: st.DataObject) -> None:
    golden = path_of(name).read_bytes()
    start = data.draw(st.integers(0, len(golden)), "start")
    end = data.draw(st.integers(start, min(start + 4, len(golden))), "end")
    _read(form_of(name), golden[:start] + data.draw(st.binary(max_size=4)) + golden[end:])


def _swap_one(tree: Any, data: st.DataObject) -> Any:
    """Return the tree with one part, at any depth, replaced by an arbitrary value."""
    if isinstance(tree, dict) and tree and data.draw(st.booleans(), "deeper"):
        branches = cast(dict[str, Any], tree)
        key = data.draw(st.sampled_from(sorted(branches)), "key")
        return {**branches, key: _swap_one(branches[key], data)}
    if isinstance(tree, list) and tree and data.draw(st.booleans(), "deeper"):
        leaves = cast(list[Any], tree)
        index = data.draw(st.integers(0, len(leaves) - 1), "index")
        return [*leaves[:index], _swap_one(leaves[index], data), *leaves[index + 1 :]]
    return data.draw(encodable_json, "instead")


@limited
@given(any_name, st.data())
def test_golden_files_with_a_replaced_part(name: str, data: st.DataObject) -> None:
    form, golden = form_of(name), path_of(name).read_bytes()
    codec = msgspec.msgpack if form.is_binary else msgspec.json
    _read(form, codec.encode(_swap_one(codec.decode(golden), data)))


@pytest.mark.parametrize("name", EXAMPLES)
def test_truncated_golden_files(name: str) -> None:
    form, golden = form_of(name), path_of(name).read_bytes()
    assert not any(_read(form, golden[:end]) for end in range(len(golden)))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_extreme_nesting(form: MessageForm) -> None:
    deep = b"\x91" * 100_000 if form.is_binary else b'{"x":' + b"[" * 100_000
    assert not _read(form, deep)
