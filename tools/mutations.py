"""The guards of a module, and the module with one of them broken.

A guard is a comparison, a part of an `and` or `or`, a negation, or a condition that leads out of a
function early; but for those that only the type checker asks for, who notices without a test. Must
not know how it is found out whether anybody notices.
"""

import ast
import hashlib
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from typing import Final, NamedTuple, cast

_FLIPPED: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
}
"""What a comparison is made: of an order, also the one that differs in the limit alone."""
_SHOWN: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_LEADS_OUT: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_Path = tuple[tuple[str, int | None], ...]
"""From the module down to a node: fields, and places in those that are lists."""


class Mutation(NamedTuple):
    """One guard, broken in one way."""

    line: int
    column: int
    until: int
    """The last line of the condition."""
    function: str
    what: str
    """The guard as it stands, and what becomes of it."""
    key: str
    """The same as long as the function around it reads the same."""
    path: _Path
    kind: str
    """A comparison's other operator, or how the condition is broken."""
    place: int
    """Which operator or operand, where there are several."""


def mutations(source: str) -> list[Mutation]:
    """All of them, from the top down."""
    tree = ast.parse(source)
    found = [
        Mutation(
            node.lineno, node.col_offset, _until(node), function, what,
            _digest(around, what, node), path, kind, place,
        )
        for path, node, function, around in _walk(tree, (), "", tree)
        for what, kind, place in _ways(node)
    ]  # fmt: skip
    return sorted(found, key=lambda one: one[:2])


def mutated(source: str, mutation: Mutation) -> ast.Module:
    """The module with this guard broken; everything else stays on its line."""
    tree = ast.parse(source)
    parent: ast.AST = tree
    for field, place in mutation.path[:-1]:
        parent = _child(parent, field, place)
    field, place = mutation.path[-1]
    broken = _broken(_child(parent, field, place), mutation.kind, mutation.place)
    if place is None:
        setattr(parent, field, broken)
    else:
        getattr(parent, field)[place] = broken
    return ast.fix_missing_locations(tree)


def _child(parent: ast.AST, field: str, place: int | None) -> ast.AST:
    held = getattr(parent, field)
    return held if place is None else held[place]


def _walk(
    node: ast.AST, path: _Path, function: str, around: ast.AST
) -> Iterator[tuple[_Path, ast.expr | ast.stmt, str, ast.AST]]:
    """Every expression and statement: where it is, and the function around it."""
    for field, held in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list"}:
            continue
        listed = isinstance(held, list)
        many = cast("list[object]", held) if listed else [held]
        for number, child in enumerate(many):
            if not isinstance(child, ast.AST):
                continue
            step = (*path, (field, number if listed else None))
            inside, scope = function, around
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside, scope = f"{function}.{child.name}".lstrip("."), child
            if isinstance(child, ast.expr | ast.stmt):
                yield step, child, function, around
            yield from _walk(child, step, inside, scope)


def _ways(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str, int]]:
    """How it can be broken: in words, its kind, and where in it."""
    match node:
        case ast.Compare():
            yield from _flips(node)
        case ast.BoolOp(values=operands):
            for place, operand in enumerate(operands):
                if not _narrows(operand, operands[place + 1 :]):
                    yield f"{ast.unparse(node)}: without {ast.unparse(operand)}", "without", place
        case ast.UnaryOp(op=ast.Not()):
            yield f"{ast.unparse(node)}: without not", "plain", 0
        case ast.If(test=test, body=[*_, last]):
            if isinstance(last, _LEADS_OUT):
                if not (_is_none(test) and isinstance(last, ast.Raise)):
                    yield f"if {ast.unparse(test)}: never", "never", 0
            elif _is_plain(test):
                yield f"if {ast.unparse(test)}: turned round", "turned", 0
        case ast.IfExp(test=test):
            if _is_plain(test):
                yield f"{ast.unparse(node)}: turned round", "turned", 0
        case _:
            return


def _flips(node: ast.Compare) -> Iterator[tuple[str, str, int]]:
    for place, operator in enumerate(node.ops):
        for other in _FLIPPED[type(operator)]:
            shown = _SHOWN[other]
            yield f"{ast.unparse(node)}: {_SHOWN[type(operator)]} -> {shown}", shown, place


def _is_none(test: ast.expr) -> ast.expr | None:
    """What it asks whether it is None, or is not."""
    match test:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(None)]):
            return left
        case _:
            return None


def _narrows(operand: ast.expr, others: list[ast.expr]) -> bool:
    """Whether the others could not be asked without it: pyright sees to that it is there."""
    asked = _is_none(operand)
    if asked is None:
        return False
    shown = ast.dump(asked)
    return any(ast.dump(node) == shown for other in others for node in ast.walk(other))


def _is_plain(test: ast.expr) -> bool:
    """Whether nothing in it is broken by itself."""
    return not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp)


def _broken(node: ast.AST, kind: str, place: int) -> ast.AST:
    node = deepcopy(node)
    match node:
        case ast.Compare():
            node.ops[place] = next(one for one, shown in _SHOWN.items() if shown == kind)()
            return node
        case ast.BoolOp():
            del node.values[place]
            return node.values[0] if len(node.values) == 1 else node
        case ast.UnaryOp():
            return node.operand
        case ast.If():
            never = ast.Constant(value=False)
            node.test = never if kind == "never" else ast.UnaryOp(ast.Not(), node.test)
            return node
        case ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
            return node
        case _:
            raise TypeError(f"no guard is a {type(node).__name__}: mutate only what was listed")


def _until(node: ast.expr | ast.stmt) -> int:
    held = node.test if isinstance(node, ast.If) else node
    return held.end_lineno or held.lineno


def _digest(around: ast.AST, what: str, node: ast.expr | ast.stmt) -> str:
    start = getattr(around, "lineno", 0)
    text = f"{_text(around)}|{what}|{node.lineno - start}|{node.col_offset}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=16)
def _text(around: ast.AST) -> str:
    return ast.unparse(around)
