"""Required node affinity, as the Kubernetes scheduler reads it."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from libs.policy.shapes import FreeForm


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of an affinity; a misspelt field must not widen it."""


class Requirement(_Strict, frozen=True, kw_only=True):
    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case _:
                return _exceeds(value, self.values[0], above=self.operator is Operator.GREATER)


class Term(_Strict, frozen=True, kw_only=True, rename="camel"):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class _Terms(_Strict, frozen=True, kw_only=True, rename="camel"):
    node_selector_terms: tuple[Term, ...]


class _Affinity(_Strict, frozen=True, kw_only=True, rename="camel"):
    required: _Terms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[Any, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class NodeAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that an affinity permits: those that match one of its terms."""

    terms: tuple[Term, ...] | None = None
    """None: there is no requirement."""
    has_preferences: bool = False

    def permits(self, name: str, labels: Mapping[str, str]) -> bool:
        if self.terms is None:
            return True
        return any(_matches(term, name, labels) for term in self.terms)

    def label_keys(self) -> Iterator[str]:
        """Yield the keys of labels that are required."""
        for term in self.terms or ():
            yield from (requirement.key for requirement in term.match_expressions)


def parse_affinity(given: FreeForm) -> NodeAffinity | str:
    """Return the affinity, or what is wrong with it."""
    try:
        affinity = msgspec.convert(given, _Affinity)
    except msgspec.ValidationError as error:
        return str(error)
    terms = affinity.required.node_selector_terms if affinity.required else None
    if terms == ():
        return "it requires one of no terms"
    for term in terms or ():
        problem = next(filter(None, _problems(term)), "")
        if problem:
            return problem
    return NodeAffinity(terms=terms, has_preferences=bool(affinity.preferred))


def _matches(term: Term, name: str, labels: Mapping[str, str]) -> bool:
    """A term without requirements matches no node."""
    requirements = (*term.match_expressions, *term.match_fields)
    fields = {"metadata.name": name}
    return (
        bool(requirements)
        and all(requirement.matches(labels) for requirement in term.match_expressions)
        and all(requirement.matches(fields) for requirement in term.match_fields)
    )


def _problems(term: Term) -> Iterator[str]:
    for requirement in term.match_expressions:
        yield _value_problem(requirement)
    for requirement in term.match_fields:
        if requirement.key != "metadata.name":
            yield f"{requirement.key} is no field of a node: only metadata.name is"
        if requirement.operator not in (Operator.IN, Operator.NOT_IN):
            yield f"{requirement.key} allows only In and NotIn"
        yield _value_problem(requirement)


def _value_problem(requirement: Requirement) -> str:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    match operator:
        case Operator.IN | Operator.NOT_IN:
            return "" if values else f"{key} {operator} needs values"
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            return f"{key} {operator} takes no values" if values else ""
        case _:
            is_number = len(values) == 1 and _integer(values[0]) is not None
            return "" if is_number else f"{key} {operator} needs one whole number"


def _exceeds(value: str | None, bound: str, *, above: bool) -> bool:
    number, limit = _integer(value or ""), _integer(bound)
    if number is None or limit is None:
        return False
    return number > limit if above else number < limit


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
    return int(text) if is_number else None
