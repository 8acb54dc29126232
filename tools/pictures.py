"""Make the pictures of the README from a real run of the demo, into docs/pictures.

    .venv/bin/python tools/pictures.py

The demo runs as for a viewer, in minutes. Meanwhile the live view is drawn at two moments; at the
end `sluice plan` draws the next upgrade, which it predicts from this one.
"""

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from libs.ctl.cluster import open_cluster
from libs.ctl.options import Access
from libs.ctl.views.frame.compose import frame, listed_room
from libs.ctl.views.frame.text import Line, Span, width_of
from libs.ctl.views.markup import marked
from libs.ctl.watch.fleet import WatchedFleet
from libs.ctl.watch.screen import Screen, arrange

FOLDER: Final = Path("docs/pictures")
WIDTH, HEIGHT = 120, 30
MOMENTS: Final = {
    "waiting for jobs to finish": "watch",
    "is halted until": "halt",
}
"""What the demo prints when a picture of the live view is taken."""
_END: Final = "Everything stays up until Ctrl-C"
_UP: Final = "The nodes start"
_SETTLES: Final = 1.0
"""Seconds from a moment to its picture: others see it after the one who prints it."""
_PLAN_SECONDS: Final = 300.0
"""Seconds within which a plan is computed on a busy machine."""
_NEXT: Final = "590.48.01"
_PLANS: Final = {
    "plan": ("plan", "nvidiadriver-serving", "--version", _NEXT, "-o", "svg"),
}
_CELL, _LINE = 8.0, 18.0
_STYLE: Final = """
svg { --page: #ffffff; --ink: #1b1f24; --dim: #59636e; --green: #1a7f4b; --red: #c0262d;
  --yellow: #8a5a00; --cyan: #0b6e80; }
@media (prefers-color-scheme: dark) { svg { --page: #0d1117; --ink: #e6edf3; --dim: #9198a1;
  --green: #3fb970; --red: #ff7b72; --yellow: #d9a326; --cyan: #56d4dd; } }
text { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--ink);
  white-space: pre; }
.page { fill: var(--page); } .ink { fill: var(--ink); }
.bold { font-weight: 700; } .dim { fill: var(--dim); } .green { fill: var(--green); }
.red { fill: var(--red); } .yellow { fill: var(--yellow); } .cyan { fill: var(--cyan); }
.reverse { fill: var(--page); }
"""


def frame_svg(lines: tuple[Line, ...], *, title: str) -> str:
    """Return the lines of a terminal as one self-contained SVG, light or dark as its reader."""
    width, height = WIDTH * _CELL + 2 * _CELL, len(lines) * _LINE + _LINE
    parts = [part for row, line in enumerate(lines) for part in _line_svg(row, line)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}"><title>{marked(title)}</title><style>{_STYLE}</style>'
        f'<rect class="page" width="{width:g}" height="{height:g}" rx="6"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _line_svg(row: int, line: Line) -> Iterator[str]:
    cells = 0
    for span in line:
        yield from _span_svg(row, cells, span)
        cells += width_of(span.text)


def _span_svg(row: int, start: int, span: Span) -> Iterator[str]:
    text = span.text.rstrip()
    lead = len(text) - len(text.lstrip())
    reverse = "reverse" in span.style.split()
    left, top = _CELL + start * _CELL, _LINE / 2 + row * _LINE
    if reverse:
        wide = width_of(span.text) * _CELL
        yield f'<rect class="ink" x="{left:g}" y="{top:g}" width="{wide:g}" height="{_LINE:g}"/>'
    if not text.strip():
        return
    shown = text.lstrip()
    x, y, long = left + lead * _CELL, top + _LINE * 0.72, width_of(shown) * _CELL
    style = f' class="{span.style}"' if span.style else ""
    yield f'<text x="{x:g}" y="{y:g}" textLength="{long:g}"{style}>{marked(shown)}</text>'


class Watching:
    """The live view of a running demo, to be drawn at any time."""

    def __init__(self, fleet: WatchedFleet) -> None:
        self._fleet = fleet

    def draw(self) -> tuple[Line, ...]:
        watched = self._fleet.watched()
        room = listed_room(watched, width=WIDTH, height=HEIGHT)
        screen = arrange(watched.nodes, Screen(), room=room)
        return frame(watched, screen, now=time.time(), width=WIDTH, height=HEIGHT).lines


@asynccontextmanager
async def watching(access: Access, telemetry: str) -> AsyncGenerator[Watching]:
    """Follow a fleet during the block, as `sluice watch` does."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(access))
        versions = await cluster.versions(await cluster.rollouts())
        fleet = WatchedFleet(access, cluster, versions, telemetry=telemetry)
        task = asyncio.create_task(fleet.run())
        try:
            yield Watching(fleet)
        finally:
            task.cancel()
            await asyncio.wait({task})


async def lines_of(process: Process) -> AsyncGenerator[str]:
    """Yield what the demo prints, and pass it on."""
    if process.stdout is None:
        raise RuntimeError("the output of the demo was not requested")
    async for line in process.stdout:
        text = line.decode().rstrip("\n")
        print(text, flush=True)
        yield text


async def film(process: Process) -> Mapping[str, str]:
    """Draw the moments, and the plans at the end; return the pictures by name."""
    lines = lines_of(process)
    seen: list[str] = []
    async for line in lines:
        seen.append(line)
        if line.startswith(_UP):
            break
    (settings,) = re.findall(r"^ +\. (\S+)$", "\n".join(seen), re.MULTILINE)
    text = await asyncio.to_thread(Path(settings).read_text)
    environ = dict(re.findall(r"^export (\w+)=([^\s\"]+)$", text, re.MULTILINE))
    (telemetry,) = re.findall(r"watch --telemetry (\S+)", "\n".join(seen))
    access = Access(
        kubeconfig=environ["KUBECONFIG"],
        nats=environ["SLUICE_NATS_URL"],
    )
    pictures: dict[str, str] = {}
    async with watching(access, telemetry) as view:
        async for line in lines:
            for words, name in MOMENTS.items():
                if words in line and name not in pictures:
                    await asyncio.sleep(_SETTLES)
                    pictures[name] = frame_svg(view.draw(), title=f"sluice watch: {line.strip()}")
            if _END in line:
                break
    for name, arguments in _PLANS.items():
        pictures[name] = await answer(environ, arguments)
    process.send_signal(signal.SIGINT)
    async for _ in lines:
        pass
    return pictures


async def answer(environ: Mapping[str, str], arguments: tuple[str, ...]) -> str:
    """Return what the command answers, as soon as no other plan is being computed."""
    until = time.monotonic() + _PLAN_SECONDS
    while True:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "libs.ctl", *arguments),
            env={**os.environ, **environ},
            stdout=PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode == 0:
            return out.decode()
        if time.monotonic() > until:
            raise SystemExit(f"sluice {' '.join(arguments)} ended with {process.returncode}")
        await asyncio.sleep(_SETTLES)


async def main() -> int:
    """Run the demo, and write the pictures; return the exit code of the demo."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "demo", "--no-tty", *sys.argv[1:]), stdout=PIPE, stderr=STDOUT
    )
    try:
        pictures = await film(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        code = await process.wait()
    missing = {*MOMENTS.values(), *_PLANS} - pictures.keys()
    if missing:
        raise SystemExit(f"the demo did not show {', '.join(sorted(missing))}: run it again")
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        (FOLDER / f"{name}.svg").write_text(picture)
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
