"""Where tasks stand, in words: for the errors of a run that does not end."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

_ASYNCIO = str(Path(asyncio.__file__).parent)


def waiting(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """One line per task: its name, its innermost line outside asyncio, what it awaits there."""
    return "\n".join(f"  {task.get_name()}: {_place(task.get_coro())}" for task in tasks)


def _place(awaited: object) -> str:
    ours: FrameType | None = None
    theirs: FrameType | None = None
    while awaited is not None:
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if isinstance(frame, FrameType):
            if not frame.f_code.co_filename.startswith(_ASYNCIO):
                ours, theirs = frame, None
            elif theirs is None:
                theirs = frame
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    if ours is None:
        return "not started, or inside asyncio only"
    code = ours.f_code
    what = "a future" if theirs is None else theirs.f_code.co_qualname
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{ours.f_lineno}) awaits {what}"


def _first(awaited: object, *names: str) -> object:
    """Coroutines, generators and async generators have the same thing under three names."""
    found = (getattr(awaited, name, None) for name in names)
    return next((each for each in found if each is not None), None)
