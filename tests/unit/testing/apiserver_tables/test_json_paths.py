"""The paths of a custom kind's columns: what they find, and which of them are refused."""

from typing import Any

import pytest

from libs.testing.apiserver.printers.json_paths import InvalidPath, Path

THING: dict[str, Any] = {
    "metadata": {"labels": {"a.b/c": "lab", "plain": "p"}},
    "spec": {"list": ["x", "y", "z"], "nul": None, "zero": 0, "map": {"k1": 1, "k2": 2}},
    "status": {
        "conditions": [
            {"type": "Other", "status": "False", "weight": 1},
            {"type": "Ready", "status": "True", "weight": 2, "note": ""},
            {"type": "Late", "status": "Unknown", "weight": 3},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.zero", [0]),
        ("$.spec.zero", [0]),
        (" .spec.zero ", [0]),
        (".spec.nul", [None]),
        (".spec.none", []),
        (".spec.none.deeper", []),
        (".spec.list.x", []),
        (".spec.list[0]", ["x"]),
        (".spec.list[-1]", ["z"]),
        (".spec.list[3]", []),
        (".spec.list[*]", ["x", "y", "z"]),
        (".spec.map.*", [1, 2]),
        (".spec.zero[*]", []),
        (r".metadata.labels.a\.b/c", ["lab"]),
        (r".metadata.labels['a\.b/c']", ["lab"]),
        (".metadata['labels'].plain", ["p"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?( @.type == "None" )].status', []),
        ('.status.conditions[?(@.type!="Ready")].type', ["Other", "Late"]),
        (".status.conditions[?(@.weight>1)].type", ["Ready", "Late"]),
        (".status.conditions[?(@.weight>=3)].type", ["Late"]),
        (".status.conditions[?(@.weight<2)].type", ["Other"]),
        (".status.conditions[?(@.weight<=2)].type", ["Other", "Ready"]),
        (".status.conditions[?(@.note)].type", ["Ready"]),
        (".status.conditions[?(@.type>1)].type", []),
        (".spec[?(@.x)].y", []),
        (".", [THING]),
    ],
)
def test_what_a_path_finds(path: str, found: list[Any]) -> None:
    assert Path(path).follow(THING) == found


@pytest.mark.parametrize(
    ("path", "stops"),
    [
        (".a..b", "..b"),
        (".a[", "["),
        (".a[1:2]", "[1:2]"),
        (".a[?(.b==1)]", ".b==1"),
        (".a[?(@.b==one)]", "one"),
        ("a.b", "a.b"),
    ],
)
def test_what_cannot_be_read_is_refused_with_where_it_stops(path: str, stops: str) -> None:
    with pytest.raises(InvalidPath) as refused:
        Path(path)
    assert repr(stops) in str(refused.value)
