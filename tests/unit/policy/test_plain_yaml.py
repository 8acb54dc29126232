"""YAML that others wrote: data is read, and what costs more than its length is refused."""

import math
import re
import sys
from contextlib import suppress

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.policy.mig.config import MigConfigFile
from libs.policy.mig.parsing import parse_config
from libs.policy.plain_yaml import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_VALUES,
    RefusedYaml,
    load_documents,
    load_yaml,
)
from libs.policy.plugin_config.config import RefusedConfig
from libs.policy.plugin_config.file import load_config
from tests.unit.policy.test_plugin_config import sharing

_BOMB = "a0: &a0 {x: 1}\n" + "\n".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 14)
)
"""Five hundred bytes whose merged mappings are looked through 9 ** 13 times."""

HOSTILE = {
    _BOMB: "merges mappings by <<",
    "[" * 80_000: f"more than {MAX_DEPTH} lists and mappings",
    "{" * 80_000: "list or mapping for a key",
    "a: " * 80_000: "no YAML",
    "- " * 80_000: f"more than {MAX_DEPTH} lists and mappings",
    f"[{'a,' * (MAX_VALUES + 1)}]": f"more than {MAX_VALUES} values",
    "---\n" * (MAX_VALUES + 1): f"more than {MAX_VALUES} values",
    "a: {<<: {b: c}}": "merges mappings by <<",
    "a: &x [*x]": "it uses an alias",
    "a: 1\na: 2": "'a' occurs twice",
    "? [a]\n: b": "list or mapping for a key",
    "a: !!python/name:os.system": "names a type",
    "a: !!timestamp 2001-99-99": "names a type",
    "a: !!int b": "names a type",
    "a: !!set {b}": "names a type",
    "%TAG ! !!\n---\na: 1": "directive %TAG",
    "a: [": "no YAML",
    "a: \0": "no YAML",
    "a: \ud800": "no valid Unicode",
    "a: b\n---\na: b": "several documents",
    "x" * (MAX_LENGTH + 1): f"more than {MAX_LENGTH} characters",
}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_more_than_data_is_refused_at_once(text: str) -> None:
    with pytest.raises(RefusedYaml) as refused:
        load_yaml(text)
    assert HOSTILE[text] in str(refused.value)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_each_parser_of_foreign_configuration_refuses_it_in_words(text: str) -> None:
    with pytest.raises(RefusedConfig) as refused:
        load_config(text)
    assert HOSTILE[text] in str(refused.value)
    found = parse_config(text)
    assert not isinstance(found, MigConfigFile)
    assert HOSTILE[text] in "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("True", True),
        ("on", True),
        ("NO", False),
        ("'no'", "no"),
        ("!!str 1", "1"),
        ("! 1", "1"),
        ("!!int 1", 1),
        ("7", 7),
        ("-7", -7),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 15),
        ("0b11", 3),
        ("018", 18.0),
        (str(2**64 - 1), 2**64 - 1),
        (str(2**64), float(2**64)),
        ("9" * 399, "9" * 399),
        ("9" * 100_000, "9" * 100_000),
        ("1e3", 1000.0),
        ("+.5", 0.5),
        ("1.", 1.0),
        ("1e999", "1e999"),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("190:20:30", "190:20:30"),
        ("190:20:30.15", "190:20:30.15"),
        ("2001-12-14", "2001-12-14"),
        ("0x", "0x"),
        ("_1", "_1"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("<<", "<<"),
        ("&a b", "b"),
        ("&a [b, {c: d, 1: [], false: {}}]", ["b", {"c": "d", 1: [], False: {}}]),
        ("!!map {a: !!seq [b]}", {"a": ["b"]}),
        ("a: |\n  %TAG\n", {"a": "%TAG\n"}),
    ],
)
def test_data_is_what_was_written(text: str, value: object) -> None:
    found = load_yaml(text)
    assert found == value
    assert type(found) is type(value)


def test_documents_and_bytes_are_read() -> None:
    assert load_documents("--- a\n---\n...\n---\nb: c\n") == ["a", None, {"b": "c"}]
    assert load_documents("a: é".encode()) == [{"a": "é"}]
    assert load_documents("a: é".encode("utf-16")) == [{"a": "é"}]


def test_the_place_of_a_problem_is_named() -> None:
    with pytest.raises(RefusedYaml) as refused:
        load_yaml("a: 1\nb: *c\n")
    assert (refused.value.line, refused.value.column) == (2, 4)


# The library writes these line breaks as they are, and reads spaces. And it writes `1e3` for a
# text, where Kubernetes reads a number.
_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x85\u2028\u2029"), max_size=8
).filter(lambda text: re.fullmatch(r"[-+]?[0-9]+e[-+]?[0-9]+", text, re.IGNORECASE) is None)
_LEAF = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | _TEXT
_DATA = st.recursive(
    _LEAF | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
)


@given(_DATA)
@settings(max_examples=40, deadline=None)
def test_what_a_library_writes_is_read_back(data: object) -> None:
    written = yaml.dump(data, Dumper=_Plain, allow_unicode=True)
    assert load_yaml(written) == data


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@given(st.text(alphabet="ab01:.-[]{},&*!?|>'\"%<# \n\t\\_~", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_data_or_refused(text: str) -> None:
    with suppress(RefusedYaml):
        load_documents(text)


NUMBERS = [
    f"{{name: gpu, replicas: {'1:' * 200}30.5}}",
    "{name: gpu, replicas: 190:20:30.15}",
    f"{{name: gpu, replicas: {'9' * (sys.int_info.default_max_str_digits + 1)}}}",
    f"{{name: gpu, replicas: 0x{'f' * 5000}}}",
    f"{{name: gpu, replicas: 2, devices: {'1:' * 200}30.5}}",
]


@pytest.mark.parametrize("resource", NUMBERS, ids=range(len(NUMBERS)))
def test_numbers_of_any_length_are_refused_in_words(resource: str) -> None:
    with pytest.raises(RefusedConfig, match=r"sharing\.timeSlicing\.resources\[0\]\."):
        load_config(sharing(resource))


def test_numbers_of_any_length_are_no_counts_of_mig_devices() -> None:
    text = "version: v1\nmig-configs: {one: [{devices: [%s], mig-enabled: false}]}"
    for number in (f"{'1:' * 200}30.5", "9" * 5000, f"0x{'f' * 5000}"):
        found = parse_config(text % number)
        assert not isinstance(found, MigConfigFile)
        assert "is no index of a GPU" in str(found[0])


def test_a_duration_of_any_length_is_judged_at_once() -> None:
    for text in ("1" * 100_000, "0" * 100_000, "0s" * 50_000):
        with pytest.raises(RefusedConfig, match="sleepInterval is no duration"):
            load_config(f"flags: {{gfd: {{sleepInterval: '{text}x'}}}}")
