"""Required node affinity: the nodes that it permits, and affinities that are refused."""

from typing import Any

import pytest

from libs.policy.affinity import NodeAffinity, parse_affinity

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LABELS = {"rack": "7", "disk": "", "zone": "a"}


def affinity_of(*terms: dict[str, Any]) -> NodeAffinity:
    affinity = parse_affinity({REQUIRED: {"nodeSelectorTerms": list(terms)}})
    assert isinstance(affinity, NodeAffinity)
    return affinity


def by_label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def by_name(operator: str, *names: str) -> dict[str, Any]:
    expression = {"key": "metadata.name", "operator": operator, "values": list(names)}
    return {"matchFields": [expression]}


@pytest.mark.parametrize(
    ("term", "permitted"),
    [
        (by_label("zone", "In", "a", "b"), True),
        (by_label("zone", "In", "b"), False),
        (by_label("other", "In", "b"), False),
        (by_label("zone", "NotIn", "b"), True),
        (by_label("other", "NotIn", "b"), True),
        (by_label("zone", "NotIn", "a"), False),
        (by_label("disk", "Exists"), True),
        (by_label("other", "Exists"), False),
        (by_label("other", "DoesNotExist"), True),
        (by_label("rack", "Gt", "6"), True),
        (by_label("rack", "Gt", "7"), False),
        (by_label("rack", "Lt", "8"), True),
        (by_label("zone", "Lt", "8"), False),
        (by_label("other", "Gt", "-1"), False),
        (by_name("In", "n"), True),
        (by_name("NotIn", "n"), False),
        ({**by_name("In", "n"), **by_label("zone", "In", "b")}, False),
        ({}, False),
    ],
)
def test_a_term_permits_nodes_as_the_scheduler_does(term: dict[str, Any], permitted: bool) -> None:
    assert affinity_of(term).permits("n", LABELS) is permitted


def test_one_matching_term_is_enough() -> None:
    terms = by_label("zone", "In", "b"), by_label("rack", "In", "7")
    assert affinity_of(*terms).permits("n", LABELS)


@pytest.mark.parametrize(
    "given", [{}, {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}]
)
def test_preferences_alone_permit_every_node(given: dict[str, Any]) -> None:
    affinity = parse_affinity(given)
    assert isinstance(affinity, NodeAffinity)
    assert affinity.permits("n", {})
    assert affinity.has_preferences is bool(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"requiredDuring": {}}, "unknown field `requiredDuring`"),
        ({REQUIRED: {}}, "missing required field `nodeSelectorTerms`"),
        ({REQUIRED: {"nodeSelectorTerms": []}}, "no terms"),
        ({REQUIRED: {"nodeSelectorTerms": [{"matchLabels": {}}]}}, "unknown field `matchLabels`"),
        ({REQUIRED: {"nodeSelectorTerms": [by_label("a", "Is", "b")]}}, "Invalid enum value 'Is'"),
        ({REQUIRED: {"nodeSelectorTerms": [by_label("a", "In")]}}, "a In needs values"),
        ({REQUIRED: {"nodeSelectorTerms": [by_label("a", "Exists", "b")]}}, "takes no values"),
        ({REQUIRED: {"nodeSelectorTerms": [by_label("a", "Gt", "b")]}}, "one whole number"),
        ({REQUIRED: {"nodeSelectorTerms": [by_label("a", "Gt", "9" * 5000)]}}, "whole number"),
        ({REQUIRED: {"nodeSelectorTerms": [by_name("Gt", "1")]}}, "allows only In and NotIn"),
        (
            {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["1"]}]}
                    ]
                }
            },
            "spec.x is no field of a node",
        ),
    ],
)
def test_what_the_api_server_would_refuse_in_a_pod_is_refused(
    given: dict[str, Any], words: str
) -> None:
    problem = parse_affinity(given)
    assert isinstance(problem, str)
    assert words in problem
