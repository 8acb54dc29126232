"""JSON of any shape against the shape that a field should have: what fits, and what is to be said.

Every field is looked at on its own, so that everything comes at once; a value that does not fit
is an error, and its field keeps the default. Nothing raises. Knows no kind and no field by name.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from libs.policy.amounts import is_amount
from libs.policy.findings import Finding, Severity, legible, shown
from libs.policy.shapes import About, Field, Form, Shape

NOTHING: Final = object()
"""In place of a value that does not fit."""

_WANTED: Final = {
    Form.BOOLEAN: ("is not true or false", "write true or false, without quotes"),
    Form.INTEGER: ("is not a whole number", "write a whole number, without quotes"),
    Form.NUMBER: ("is not a number", "write a number, without quotes"),
    Form.TEXT: ("is not a text", "write a text, in quotes if it looks like a number"),
    Form.AMOUNT: ("is neither a number nor a text", "write a number or a text"),
    Form.LIST: ("is not a list", "write a list"),
    Form.MAP: ("is not an object", "write keys with their values"),
    Form.OBJECT: ("is not an object", "write fields with their values"),
    Form.OPEN: ("is not an object", "write fields with their values"),
}


class Converter:
    """Collects what is to be said of one object while its values are converted."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._forms: Mapping[Form, Callable[[Any, Shape, About, str], Any]] = {
            Form.BOOLEAN: self._boolean,
            Form.INTEGER: self._integer,
            Form.NUMBER: self._number,
            Form.TEXT: self._text,
            Form.AMOUNT: self._amount,
            Form.LIST: self._list,
            Form.MAP: self._map,
            Form.OPEN: self._open,
        }

    def struct(self, value: Any, shape: Shape, path: str, moot: str | None = "") -> Any:
        """The struct of this shape; `moot` is why nothing follows from it, None: say nothing."""
        if not isinstance(value, Mapping):
            return self._unfit(value, Form.OBJECT, path)
        given = cast("Mapping[Any, Any]", value)
        known = {field.name: field for field in shape.fields}
        self._unknown(given, known, path)
        made: dict[str, Any] = {}
        for field in shape.fields:
            at = f"{path}.{field.name}"
            below = given.get(field.name)
            into = known[field.about.alias] if field.about.alias else field
            if below is None and field.about.required and not field.about.stored:
                self.say(at, "", "is required", "set it")
            if below is None or (into is not field and not self._alias(field, given, at)):
                continue
            fit = self._field(below, into, at, moot)
            if fit is not NOTHING:
                made[into.attribute] = fit
        if any(
            field.default is msgspec.NODEFAULT and field.attribute not in made
            for field in shape.fields
        ):
            return NOTHING
        return shape.made(**made)

    def say(
        self,
        field: str,
        value: str,
        problem: str,
        remedy: str = "",
        severity: Severity = Severity.ERROR,
    ) -> None:
        """One more finding."""
        self.findings.append(
            Finding(field=field, value=value, problem=problem, remedy=remedy, severity=severity)
        )

    def _field(self, value: Any, field: Field, path: str, moot: str | None) -> Any:
        because = moot if moot is None else field.about.moot or moot
        if field.shape.form is Form.OBJECT:
            return self.struct(value, field.shape, path, because)
        fit = self._value(value, field.shape, field.about, path)
        if fit is NOTHING or because is None:
            return fit
        if field.about.absent and fit is True:
            problem = f"is switched on, but {because}"
            self.say(path, "true", problem, "set it to false", Severity.WARNING)
        elif fit != field.default and (because or field.about.deprecated):
            problem = "is deprecated" if field.about.deprecated else "is accepted"
            problem += f" and has no effect here, because {because}" if because else ""
            remedy = field.about.deprecated or "leave it out, or know that it does nothing"
            self.say(path, shown(value), problem, remedy, Severity.NOTE)
        return fit

    def _alias(self, field: Field, given: Mapping[Any, Any], path: str) -> bool:
        """Whether an old spelling is read: not where the new one says something itself."""
        name, value = field.about.alias, shown(given[field.name])
        holds = given.get(name) is None
        problem = f"is an old spelling of {name}, "
        problem += "and is read as that" if holds else "which is set too and holds"
        self.say(path, value, problem, f"write {name}" if holds else "remove it", Severity.WARNING)
        return holds

    def _unknown(self, given: Mapping[Any, Any], known: Mapping[str, Field], path: str) -> None:
        for name, value in given.items():
            if name not in known:
                self.say(
                    f"{path}.{legible(str(name))}",
                    shown(value),
                    "is no field of this kind",
                    "look for a slip of the pen, or remove it",
                    Severity.WARNING,
                )

    def _value(self, value: Any, shape: Shape, about: About, path: str) -> Any:
        if shape.form is Form.OBJECT:
            return self.struct(value, shape, path, None)
        return self._forms[shape.form](value, shape, about, path)

    def _unfit(self, value: Any, form: Form, path: str) -> Any:
        problem, remedy = _WANTED[form]
        self.say(path, shown(value), problem, remedy)
        return NOTHING

    def _boolean(self, value: Any, _shape: Shape, _about: About, path: str) -> Any:
        return value if isinstance(value, bool) else self._unfit(value, Form.BOOLEAN, path)

    def _integer(self, value: Any, _shape: Shape, about: About, path: str) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._unfit(value, Form.INTEGER, path)
        bound = 2 ** (about.bits - 1)
        least = -bound if about.least is None else about.least
        most = bound - 1 if about.most is None else about.most
        if not least <= value <= most:
            self.say(path, shown(value), f"is not from {least} to {most}", "write such a number")
            return NOTHING
        return value

    def _number(self, value: Any, _shape: Shape, _about: About, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._unfit(value, Form.NUMBER, path)
        try:
            return float(value)
        except OverflowError:
            return self._unfit(value, Form.NUMBER, path)

    def _text(self, value: Any, shape: Shape, about: About, path: str) -> Any:
        if not isinstance(value, str) or not _encodes(value):
            return self._unfit(value, Form.TEXT, path)
        if shape.words and value not in shape.words:
            words = ", ".join(f'"{word}"' for word in shape.words)
            self.say(path, shown(value), "is not a word for this field", f"write one of {words}")
            return NOTHING
        if about.pattern and value and not re.search(about.pattern, value):
            self.say(path, shown(value), "has a wrong form", f"it must match {about.pattern}")
            return NOTHING
        if about.amount and value and not is_amount(value):
            return self._no_amount(value, path)
        return shape.made(value) if shape.made else value

    def _amount(self, value: Any, shape: Shape, about: About, path: str) -> Any:
        if isinstance(value, str):
            return self._text(value, shape, about, path) if value else self._no_amount(value, path)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._unfit(value, Form.AMOUNT, path)
        if not -(2**31) <= value < 2**31 or (about.amount and not is_amount(value)):
            return self._no_amount(value, path)
        return value

    def _no_amount(self, value: Any, path: str) -> Any:
        self.say(
            path,
            shown(value),
            "is neither a number from 0 up nor a percentage from 0% to 100%",
            'write a number like 2, or a text like "25%"',
        )
        return NOTHING

    def _list(self, value: Any, shape: Shape, about: About, path: str) -> Any:
        if not isinstance(value, list | tuple) or shape.below is None:
            return self._unfit(value, Form.LIST, path)
        items = cast("list[Any]", value)
        fits = [
            self._value(item, shape.below, about, f"{path}[{at}]") for at, item in enumerate(items)
        ]
        return tuple(fit for fit in fits if fit is not NOTHING)

    def _map(self, value: Any, shape: Shape, about: About, path: str) -> Any:
        if not isinstance(value, Mapping) or shape.below is None:
            return self._unfit(value, Form.MAP, path)
        made: dict[str, Any] = {}
        for key, given in cast("Mapping[Any, Any]", value).items():
            at = f"{path}[{legible(str(key))}]"
            if not isinstance(key, str) or not _encodes(key):
                self.say(at, shown(given), "has a key that is not a text", "write another key")
                continue
            fit = self._value(given, shape.below, about, at)
            if fit is not NOTHING:
                made[key] = fit
        return made

    def _open(self, value: Any, _shape: Shape, _about: About, path: str) -> Any:
        if not isinstance(value, Mapping):
            return self._unfit(value, Form.OPEN, path)
        try:
            return msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError, OverflowError, RecursionError):
            self.say(path, "", "holds what JSON cannot say", "write texts, numbers, lists, objects")
            return NOTHING


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
