"""Rows for people: a table where it fits, otherwise a block of lines for each row. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from libs.ctl.text import printable

_GAP: Final = 2
_LEAST_FOLDED: Final = 24
"""Cells that a column of sentences needs at least."""


R = TypeVar("R")


class Column(msgspec.Struct, Generic[R], frozen=True):
    """A column of rows of one kind, and what it shows of each."""

    title: str
    cell: Callable[[R], str]
    right: bool = False
    folds: bool = False
    """Whether the column has sentences, which may take several lines."""
    is_wide: bool = False
    """Shown with `-o wide` only."""


def listing(
    columns: Sequence[Column[R]], rows: Iterable[R], *, width: int, wide: bool = False
) -> RenderableType:
    """Return the rows as a table; as blocks of lines if the terminal is too narrow for one."""
    kept = [column for column in columns if wide or not column.is_wide]
    cells = [[printable(column.cell(row)) for column in kept] for row in rows]
    if not cells:
        return Group()
    needed = sum(_width(column, index, cells) for index, column in enumerate(kept))
    if needed + _GAP * (len(kept) - 1) <= width:
        return _table(kept, cells)
    return Group(*(_block(kept, row) for row in cells))


def _width(column: Column[R], index: int, cells: Sequence[Sequence[str]]) -> int:
    longest = max(cell_len(column.title), *(cell_len(row[index]) for row in cells))
    return min(longest, _LEAST_FOLDED) if column.folds else longest


def _table(columns: Sequence[Column[R]], cells: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.folds,
        )
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _block(columns: Sequence[Column[R]], row: Sequence[str]) -> RenderableType:
    pairs = zip(columns[1:], row[1:], strict=True)
    lines = [fact(column.title.lower(), text) for column, text in pairs if text]
    return Group(Text(row[0], style="bold", overflow="fold"), *lines)


def fact(name: str, text: str) -> RenderableType:
    """Return an indented line `name: text`, continued below the text."""
    return indented(f"{name}: {text}")


def indented(text: str) -> RenderableType:
    return Padding(Text(printable(text), overflow="fold"), (0, 0, 0, 2), expand=False)


class Hanging(msgspec.Struct, frozen=True):
    """A head with a sentence beside it, which is continued below itself if there is room."""

    head: Text
    body: str
    style: str = ""
    """Of the sentence."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - cell_len(self.head.plain) - _GAP
        body = Text(printable(self.body), style=self.style, overflow="fold")
        if room < _LEAST_FOLDED:
            yield Text.assemble(self.head, " " * _GAP, body, overflow="fold")
            return
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(self.head, body)
        yield grid


def cut(text: str) -> Text:
    """Return one indented line, with `…` where it is longer than the terminal is wide."""
    return Text(f"  {printable(text)}", no_wrap=True, overflow="ellipsis")


def heading(text: str) -> Text:
    return Text(printable(text), style="bold", overflow="fold")


def line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style, overflow="fold")
