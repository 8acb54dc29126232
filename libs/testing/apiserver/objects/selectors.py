"""Selectors of objects by labels and fields, and of the nodes that a pod may run on."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.testing.apiserver.status import StatusError

Labels = Mapping[str, str]

_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_IN: Final = re.compile(r"([^\s=!(),<>]+)\s+(in|notin)\s*\(([^()]*)\)")
_COMPARED: Final = re.compile(r"([^\s=!(),<>]+)\s*(==|=|!=|<|>)\s*([^\s=!(),<>]*)")
_BARE: Final = re.compile(r"(!?)\s*([^\s=!(),<>]+)")
_OPERATORS: Final = {
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    "in": "In",
    "notin": "NotIn",
    ">": "Gt",
    "<": "Lt",
}
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS: Final = (*_LABEL_OPERATORS, "Gt", "Lt")


@dataclass(frozen=True)
class Requirement:
    """A requirement on the value of one label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        if not _INTEGER.fullmatch(value):
            return False
        number, bound = int(value), int(self.values[0])
        return number > bound if self.operator == "Gt" else number < bound


def label_selector(text: str) -> Callable[[Labels], bool]:
    """Return the predicate of a `labelSelector` in a query."""
    terms = re.split(r",(?![^(]*\))", text) if text.strip() else []
    return _all([_requirement(term.strip()) for term in terms])


def _all(requirements: Sequence[Requirement]) -> Callable[[Labels], bool]:
    return lambda labels: all(requirement.matches(labels) for requirement in requirements)


def _bad(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def _requirement(term: str) -> Requirement:
    if matched := _IN.fullmatch(term):
        key, values = matched[1], tuple(each.strip() for each in matched[3].split(","))
        requirement = Requirement(key, _OPERATORS[matched[2]], values)
    elif matched := _COMPARED.fullmatch(term):
        requirement = Requirement(matched[1], _OPERATORS[matched[2]], (matched[3],))
    elif matched := _BARE.fullmatch(term):
        requirement = Requirement(matched[2], "DoesNotExist" if matched[1] else "Exists")
    else:
        raise _bad(f"unable to parse requirement: found {term!r}")
    if not _KEY.fullmatch(requirement.key):
        raise _bad(f"unable to parse requirement: invalid label key {requirement.key!r}")
    numeric = requirement.operator in ("Gt", "Lt")
    for value in requirement.values:
        if not _VALUE.fullmatch(value) or (numeric and not _INTEGER.fullmatch(value)):
            raise _bad(f"unable to parse requirement: invalid label value {value!r}")
    return requirement


def from_object(selector: Mapping[str, Any] | None) -> Callable[[Labels], bool]:
    """Return the predicate of a selector in an object: None matches nothing, `{}` everything."""
    if selector is None:
        return lambda _: False
    pairs: Mapping[str, str] = selector.get("matchLabels") or {}
    requirements = [Requirement(key, "In", (value,)) for key, value in pairs.items()]
    expressions: list[Mapping[str, Any]] = selector.get("matchExpressions") or []
    requirements += [_from_expression(expression, _LABEL_OPERATORS) for expression in expressions]
    return _all(requirements)


def _from_expression(expression: Mapping[str, Any], operators: Collection[str]) -> Requirement:
    operator = expression.get("operator", "")
    values = tuple(expression.get("values") or ())
    valid = {"In": len(values) > 0, "NotIn": len(values) > 0, "Gt": len(values) == 1}
    has_values = valid.get("Gt" if operator == "Lt" else operator, not values)
    if operator not in operators or not has_values:
        raise StatusError(
            422,
            "Invalid",
            f"a selector cannot be {operator!r} of {list(values)} for {expression.get('key')!r}",
        )
    return Requirement(expression["key"], operator, values)


def field_selector(
    text: str, *, supported: Collection[str]
) -> Callable[[Callable[[str], str]], bool]:
    """Return the predicate of a `fieldSelector`, over a function from field path to value."""
    terms = [_field_term(text, term) for term in _split_terms(text) if term]
    for path, _, _ in terms:
        if path not in supported:
            raise _bad(f"field label not supported: {path}")
    return lambda value: all((value(path) == wanted) == equal for path, equal, wanted in terms)


def _split_terms(text: str) -> list[str]:
    return re.findall(r"(?:[^,\\]|\\.|\\$)+", text, re.DOTALL)


def _field_term(text: str, term: str) -> tuple[str, bool, str]:
    match = re.search(r"!=|==|=", term)
    if match is None:
        raise _bad(f"invalid selector: '{text}'; can't understand '{term}'")
    return term[: match.start()], match[0] != "!=", _unescaped(term[match.end() :])


def _unescaped(value: str) -> str:
    if wrong := re.search(r"\\(?:[^\\,=]|$)", re.sub(r"\\[\\,=]", "", value)):
        raise _bad(f"invalid field selector: invalid escape sequence: {wrong[0]}")
    if wrong := re.search(r"[,=]", re.sub(r"\\.", "", value)):
        raise _bad(f"invalid field selector: unescaped character in value: {wrong[0]}")
    return re.sub(r"\\([\\,=])", r"\1", value)


def node_affinity(pod_spec: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Return whether nodeSelector and required node affinity permit the node."""
    meta: Mapping[str, Any] = node.get("metadata") or {}
    labels: Labels = meta.get("labels") or {}
    selector: Labels = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity: Mapping[str, Any] = pod_spec.get("affinity") or {}
    by_node: Mapping[str, Any] = affinity.get("nodeAffinity") or {}
    required: Mapping[str, Any] | None = by_node.get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required is None:
        return True
    terms: list[Mapping[str, Any]] = required.get("nodeSelectorTerms") or []
    fields = {"metadata.name": str(meta.get("name", ""))}
    return any(_term_matches(term, labels, fields) for term in terms)


def _term_matches(term: Mapping[str, Any], labels: Labels, fields: Labels) -> bool:
    by_label: list[Mapping[str, Any]] = term.get("matchExpressions") or []
    by_field: list[Mapping[str, Any]] = term.get("matchFields") or []
    if not by_label and not by_field:
        return False
    return all(_from_expression(e, _NODE_OPERATORS).matches(labels) for e in by_label) and all(
        _from_expression(e, ("In", "NotIn")).matches(fields) for e in by_field
    )
