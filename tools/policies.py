"""Generate docs/policies.md from the model of the policies."""

from collections.abc import Iterator
from typing import Any

from struct_docs import table

from libs.policy.kinds import KINDS
from libs.policy.kinds.common import Kind
from libs.policy.manager_env import VARIABLES, ManagerVariable
from libs.policy.shapes import About, Field, JsonType, Shape, leaf_fields, to_json
from libs.policy.toolkit_env import VARIABLES as TOOLKIT_VARIABLES

_INTRODUCTION = """# Policies

**Status.** Generated from `libs.policy` by `make fix`; edit the model, not this page. The
manifests in `deploy/chart/crds/` are generated from the same model.

Manifests written for the NVIDIA GPU Operator are accepted unchanged. A field without an effect
here is accepted too: the table gives the reason, and so does the object's status if the field
is set. A value that cannot be used is an error in the object's status, with field, value and
remedy; nothing new starts in its pool until it is corrected.

*Here* tells what becomes of a field in this version: it **works**, it is accepted with **no
effect**, or some of its values are **refused**. Setting a field without effect changes nothing in
the cluster, and the condition `Accepted` of its policy names it. The condition `MissingOperands`
names each section that switches on an operand which does not exist here; the policy is not ready
while pods may lack GPUs for that reason.

*Default* is the value of a field that is not set. The API server writes a default in **bold**
into the object; other defaults are applied when the object is read.
"""

_MANAGER = """<a id="manager"></a>
### The driver manager's variables

`manager.env` of a driver. The vendor's driver manager does not run: Sluice performs its steps.
Like the manager, it obeys the variables about pods only where `autoUpgrade` is off: then they
apply to a node whose driver pod was deleted, over the fields of `upgradePolicy`. Where it is on,
they have no effect. The condition `Accepted` names each variable that has none. A value that
cannot be read, or is refused, is an error while `autoUpgrade` is off.
"""

_TOOLKIT = """<a id="toolkit"></a>
### The container toolkit's variables

`toolkit.env` of a ClusterPolicy. The condition `Accepted` names each variable that has no effect. A
value that the driver agent could not obey is an error.
"""

_NAMES = {
    JsonType.BOOLEAN: "boolean",
    JsonType.INTEGER: "integer",
    JsonType.NUMBER: "number",
    JsonType.TEXT: "text",
    JsonType.INT_OR_STRING: "number or text",
    JsonType.FREE_FORM: "object",
}


_VARIABLE_COLUMNS = ["Variable", "Here", "What it does, or why it has no effect"]


def page() -> str:
    lines = [_INTRODUCTION]
    lines += [
        f"- [{kind.name}](#{kind.name.lower()}): {kind.description}" for kind in KINDS.values()
    ]
    for kind in KINDS.values():
        lines += [*([] if lines[-1] == "" else [""]), *_kind(kind)]
    for variables in (_manager_variables(), _toolkit_variables()):
        lines += [*([] if lines[-1] == "" else [""]), *variables]
    return "\n".join(lines).rstrip() + "\n"


def _manager_variables() -> Iterator[str]:
    yield _MANAGER
    rows = [
        [f"`{name}`", "no effect" if each.because else _handling(each), each.because or each.effect]
        for name, each in VARIABLES.items()
    ]
    yield from table(_VARIABLE_COLUMNS, rows)


def _toolkit_variables() -> Iterator[str]:
    yield _TOOLKIT
    rows: list[list[str]] = []
    for name, each in TOOLKIT_VARIABLES.items():
        here = "no effect" if each.because else "obeyed"
        taken = f"; takes {each.values}" if each.values else ""
        beside = f"; {each.before} has no effect beside it" if each.before else ""
        rows.append([f"`{name}`", here, each.because or f"{each.effect}{taken}{beside}"])
    yield from table(_VARIABLE_COLUMNS, rows)


def _handling(variable: ManagerVariable) -> str:
    return "obeyed; refused: `false`" if variable.refuses_false else "obeyed"


def _kind(kind: Kind) -> Iterator[str]:
    yield f'<a id="{kind.name.lower()}"></a>'
    yield f"## {kind.name}"
    yield ""
    yield f"`{kind.api_version}`, cluster-scoped. {kind.description}"
    if kind.short_names:
        yield f"Short names: {', '.join(f'`{name}`' for name in kind.short_names)}."
    yield ""
    plain_fields = [field for field in kind.spec_shape.fields if not _has_fields(field.shape)]
    if plain_fields:
        yield from _table([row for field in plain_fields for row in _rows(field)])
    for field in kind.spec_shape.fields:
        if _has_fields(field.shape):
            yield f"### {kind.name}: `spec.{field.name}`"
            yield ""
            yield f"{field.about.description}{_required(field.about)}"
            yield ""
            yield from _table(list(_rows(field)))


def _has_fields(shape: Shape) -> bool:
    return shape.type is JsonType.OBJECT


def _table(rows: list[list[str]]) -> Iterator[str]:
    yield from table(["Field", "Here", "Type", "Default", "What it says, and what follows"], rows)


def _rows(field: Field) -> Iterator[list[str]]:
    parent = Shape(type=JsonType.OBJECT, fields=(field,))
    for path, leaf, because in leaf_fields(parent, "spec"):
        yield [
            f"`{path}`",
            _outcome(leaf.about, because),
            _type(leaf.shape),
            _default(leaf, because),
            _effect(leaf.about, because),
        ]


def _outcome(about: About, because: str) -> str:
    outcome = "no effect" if because else "works"
    return f"{outcome}; refused: {about.refuses}" if about.refuses else outcome


def _type(shape: Shape) -> str:
    if shape.choices:
        return ", ".join(f"`{word}`" if word else '`""`' for word in shape.choices)
    if shape.type is JsonType.LIST and shape.items:
        return f"list of {_plural(shape.items)}"
    if shape.type is JsonType.MAP and shape.items:
        return f"map of {_plural(shape.items)}"
    if shape.type is JsonType.OBJECT:
        return "object"
    return _NAMES[shape.type]


def _plural(shape: Shape) -> str:
    if shape.type is JsonType.OBJECT:
        return "{" + ", ".join(f"`{field.name}`" for field in shape.fields) + "}"
    return f"{_type(shape)}s"


def _default(field: Field, because: str) -> str:
    about = field.about
    if about.unset and not because:
        return about.unset
    if about.required and not about.stored:
        return "required"
    value: Any = to_json(field.default, field.shape) if field.default is not None else None
    if value in (None, "", [], {}):
        return ""
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else str(value)
    return f"**`{text}`**" if about.stored else f"`{text}`"


def _required(about: About) -> str:
    return " The section is required; it may be empty." if about.required else ""


def _effect(about: About, because: str) -> str:
    if about.alias:
        return (
            f"{about.description} An old spelling of `{about.alias}`: read as that, with a warning."
        )
    sentences = [about.description]
    if about.deprecated:
        sentences.append(f"Deprecated: {about.deprecated}.")
    if because:
        sentences.append(f"*No effect here, because {because}.*")
    elif about.effect:
        sentences.append(f"→ {about.effect}.")
    return " ".join(sentences)
