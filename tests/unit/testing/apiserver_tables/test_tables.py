"""The table around the rows: its metadata, its headers, and what a row carries of its object."""

from typing import Any

import pytest

from libs.testing.apiserver.printers import tables
from libs.testing.apiserver.status import StatusError
from tests.unit.testing.apiserver_tables.builders import NOW, kind, made

NAMESPACES = kind("namespaces")
ONE = made("a", status={"phase": "Active"})
TWO = made("b", status={"phase": "Terminating"})


def test_of_one_object() -> None:
    assert tables.table(NAMESPACES, [ONE], now=NOW, include="") == {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Status", "type": "string", "format": "", "description": "", "priority": 0},
            {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
        ],
        "rows": [
            {
                "cells": ["a", "Active", "90s"],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": ONE["metadata"],
                },
            }
        ],
    }


def test_of_a_list_has_the_lists_metadata() -> None:
    metadata = {"resourceVersion": "99", "continue": "on"}
    table = tables.table(NAMESPACES, [ONE, TWO], now=NOW, include="", metadata=metadata)
    assert table["metadata"] == metadata
    assert [row["cells"][0] for row in table["rows"]] == ["a", "b"]


def test_of_an_empty_list_has_headers_and_no_rows() -> None:
    table = tables.table(NAMESPACES, [], now=NOW, include="", metadata={"resourceVersion": "1"})
    assert (len(table["columnDefinitions"]), table["rows"]) == (3, [])


def test_later_events_of_a_watch_have_no_headers() -> None:
    table = tables.table(NAMESPACES, [ONE], now=NOW, include="", headers=False)
    assert table["columnDefinitions"] is None


@pytest.mark.parametrize(
    ("include", "carried"),
    [
        ("", {"metadata": ONE["metadata"], "kind": "PartialObjectMetadata",
              "apiVersion": "meta.k8s.io/v1"}),
        ("Metadata", {"metadata": ONE["metadata"], "kind": "PartialObjectMetadata",
                      "apiVersion": "meta.k8s.io/v1"}),
        ("Object", ONE),
        ("None", None),
    ],
)  # fmt: skip
def test_what_a_row_carries(include: str, carried: Any) -> None:
    table = tables.table(NAMESPACES, [ONE], now=NOW, include=include)
    assert table["rows"][0]["object"] == carried


def test_any_other_include_is_refused() -> None:
    with pytest.raises(StatusError) as refused:
        tables.table(NAMESPACES, [ONE], now=NOW, include="All")
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
    assert "'Metadata', 'Object', 'None', or empty" in refused.value.message


@pytest.mark.parametrize(
    ("phase", "over"), [("Succeeded", True), ("Failed", True), ("Running", False)]
)
def test_the_row_of_a_pod_that_is_over_says_so(phase: str, over: bool) -> None:
    table = tables.table(kind("pods"), [made("p", status={"phase": phase})], now=NOW, include="")
    conditions = table["rows"][0].get("conditions", [])
    assert [(each["type"], each["status"], each["reason"]) for each in conditions] == [
        ("Completed", "True", phase)
    ] * over
