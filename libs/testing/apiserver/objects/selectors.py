"""Which objects a selector means: by labels, by fields, and which nodes a pod may run on.

Every function makes a predicate or answers one; none of them reads an object that it was not given.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.testing.apiserver.status import StatusError

Labels = Mapping[str, str]

_TOKEN: Final = re.compile(r"\s*(?:(==|!=|[=!(),<>])|([^\s=!(),<>]+)|$)")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS: Final = (*_LABEL_OPERATORS, "Gt", "Lt")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class Requirement:
    """What one label must be like."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def met(self, labels: Labels) -> bool:
        """Whether these labels are."""
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
                return value is not None and self._compared(value)

    def _compared(self, value: str) -> bool:
        if not _INTEGER.fullmatch(value):
            return False
        held, bound = int(value), int(self.values[0])
        return held > bound if self.operator == "Gt" else held < bound


def label_selector(text: str) -> Callable[[Labels], bool]:
    """The predicate of a `labelSelector` in a query."""
    return _all(_Parser(text).requirements())


def _all(requirements: Sequence[Requirement]) -> Callable[[Labels], bool]:
    return lambda labels: all(requirement.met(labels) for requirement in requirements)


def _bad(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Sort and text of each: `id`, the sign itself, or `end`."""
    result: list[tuple[str, str]] = []
    for match in _TOKEN.finditer(text):
        sign, word = match[1], match[2]
        if sign:
            result.append((sign, sign))
        elif word:
            result.append(("id", word))
    return [*result, ("end", "")]


class _Parser:
    """The grammar of the query: requirements, with commas between them."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            sort, text = self._peek()
            if sort == "end" and not found:
                return found
            if sort not in ("id", "!"):
                expected = "identifier after ','" if found else "!, identifier, or 'end of string'"
                raise _bad(f"found '{text}', expected: {expected}")
            found.append(self._requirement())
            sort, text = self._take()
            if sort == "end":
                return found
            if sort != ",":
                raise _bad(f"found '{text}', expected: ',' or 'end of string'")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _take(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _requirement(self) -> Requirement:
        sort, key = self._take()
        absent = sort == "!"
        if absent:
            sort, key = self._take()
        if sort != "id":
            raise self._wrong(f"found '{key}', expected: identifier")
        _check_key(key)
        if absent or self._peek()[0] in ("end", ","):
            return Requirement(key, "DoesNotExist" if absent else "Exists")
        sort, word = self._take()
        match word:
            case "=" | "==":
                operator, values = "In", self._value()
            case "!=":
                operator, values = "NotIn", self._value()
            case ">" | "<":
                operator, values = ("Gt" if word == ">" else "Lt"), self._value()
            case "in" | "notin":
                operator, values = ("In" if word == "in" else "NotIn"), self._values()
            case _:
                operators = "in, notin, =, ==, !=, gt, lt"
                raise self._wrong(f"found '{word}', expected: {operators}")
        _check_values(key, operator, values)
        return Requirement(key, operator, values)

    def _wrong(self, message: str) -> StatusError:
        return _bad(f"unable to parse requirement: {message}")

    def _value(self) -> tuple[str, ...]:
        if self._peek()[0] in ("end", ","):
            return ("",)
        sort, text = self._take()
        if sort != "id":
            raise self._wrong(f"found '{text}', expected: identifier")
        return (text,)

    def _values(self) -> tuple[str, ...]:
        sort, text = self._take()
        if sort != "(":
            raise self._wrong(f"found '{text}' expected: '('")
        values: list[str] = []
        empty = True
        while True:
            sort, text = self._take()
            if sort == "id" and empty:
                values.append(text)
                empty = False
            elif sort in (",", ")"):
                if empty:
                    values.append("")
                empty = True
                if sort == ")":
                    return tuple(values)
            else:
                raise self._wrong(f"found '{text}', expected: ',' or ')'")


def _check_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if (slash and not _PREFIX.fullmatch(prefix)) or not _NAME.fullmatch(name):
        raise _bad(
            f'unable to parse requirement: <nil>: Invalid value: "{key}": a qualified name must '
            "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character, with an optional DNS subdomain prefix and '/'"
        )


def _check_values(key: str, operator: str, values: Sequence[str]) -> None:
    for at, value in enumerate(values):
        if value and not _NAME.fullmatch(value):
            raise _bad(
                f'unable to parse requirement: values[{at}][{key}]: Invalid value: "{value}": a '
                "valid label must be an empty string or consist of alphanumeric characters, '-', "
                "'_' or '.', and must start and end with an alphanumeric character"
            )
        if operator in ("Gt", "Lt") and not _INTEGER.fullmatch(value):
            raise _bad(
                f'unable to parse requirement: values[{at}]: Invalid value: "{value}": for '
                "'Gt', 'Lt' operators, the value must be an integer"
            )


def from_object(selector: Mapping[str, Any] | None) -> Callable[[Labels], bool]:
    """The predicate of a selector in an object; none selects nothing, an empty one everything."""
    if selector is None:
        return lambda _: False
    pairs: Mapping[str, str] = selector.get("matchLabels") or {}
    requirements = [Requirement(key, "In", (value,)) for key, value in pairs.items()]
    expressions: list[Mapping[str, Any]] = selector.get("matchExpressions") or []
    requirements += [_expressed(expression, _LABEL_OPERATORS) for expression in expressions]
    return _all(requirements)


def _expressed(expression: Mapping[str, Any], operators: Collection[str]) -> Requirement:
    operator = expression.get("operator", "")
    values = tuple(expression.get("values") or ())
    wanted = {"In": len(values) > 0, "NotIn": len(values) > 0, "Gt": len(values) == 1}
    fits = wanted.get("Gt" if operator == "Lt" else operator, not values)
    if operator not in operators or not fits:
        raise StatusError(
            422,
            "Invalid",
            f"a selector cannot be {operator!r} of {list(values)} for {expression.get('key')!r}",
        )
    return Requirement(expression["key"], operator, values)


def field_selector(
    text: str, *, supported: Collection[str]
) -> Callable[[Callable[[str], str]], bool]:
    """The predicate of a `fieldSelector`, over a function from a field's path to its value."""
    terms = [_field_term(text, term) for term in _split_terms(text) if term]
    for path, _, _ in terms:
        if path not in supported:
            raise _bad(f"field label not supported: {path}")
    return lambda value: all((value(path) == want) == equal for path, equal, want in terms)


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
    """Whether the pod may run on the node, by its nodeSelector and required node affinity."""
    meta: Mapping[str, Any] = node.get("metadata") or {}
    labels: Labels = meta.get("labels") or {}
    wanted: Labels = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
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
    return any(_term_met(term, labels, fields) for term in terms)


def _term_met(term: Mapping[str, Any], labels: Labels, fields: Labels) -> bool:
    by_label: list[Mapping[str, Any]] = term.get("matchExpressions") or []
    by_field: list[Mapping[str, Any]] = term.get("matchFields") or []
    if not by_label and not by_field:
        return False
    return all(_expressed(e, _NODE_OPERATORS).met(labels) for e in by_label) and all(
        _expressed(e, ("In", "NotIn")).met(fields) for e in by_field
    )


def tolerates(pod_spec: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether one of the pod's tolerations is for this taint."""
    tolerations: list[Mapping[str, Any]] = pod_spec.get("tolerations") or []
    return any(_is_for(toleration, taint) for toleration in tolerations)


def _is_for(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    for name in ("effect", "key"):
        if toleration.get(name) and toleration[name] != taint.get(name):
            return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return toleration.get("value", "") == taint.get("value", "")
        case _:
            return False
