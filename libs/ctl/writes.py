"""Write what a person asked for: decide it, ask about its risks once, write, and tell it."""

import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from libs.ctl.cluster import LABELLED_NODES, Cluster
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import printable
from libs.kube import views
from libs.kube.resources import Resource

V = TypeVar("V", bound=views.Object)


async def write_all(
    cluster: Cluster,
    resource: Resource[V],
    seen: Iterable[V],
    decide: Callable[[V], Edit],
    *,
    yes: bool,
    remark: Callable[[str, Edit], Awaitable[str]] | None = None,
) -> None:
    """Decide all objects, ask about the risks once, then write each and print what was done.

    `remark` returns what is added to that about an object.
    """
    planned = [(each.metadata.name, decide(each)) for each in seen]
    confirm([edit.risk for _, edit in planned], yes=yes)
    for name, confirmed in planned:
        edit = await cluster.write(resource, name, as_confirmed(decide, confirmed, yes=yes))
        more = "" if remark is None else await remark(name, edit)
        print(printable(f"{edit.done}{more}"))


async def write_nodes(
    cluster: Cluster,
    names: Sequence[str],
    decide: Callable[[views.Object], Edit],
    *,
    yes: bool,
    remark: Callable[[str, Edit], Awaitable[str]] | None = None,
) -> None:
    """Label or annotate nodes, as a person does with kubectl."""
    nodes = [await cluster.node(name) for name in dict.fromkeys(names)]  # one may be named twice
    await write_all(cluster, LABELLED_NODES, nodes, decide, yes=yes, remark=remark)


def as_confirmed(decide: Callable[[V], Edit], confirmed: Edit, *, yes: bool) -> Callable[[V], Edit]:
    """Refuse what has become something else than a person confirmed."""

    def checked(seen: V) -> Edit:
        edit = decide(seen)
        if edit.risk and edit.risk != confirmed.risk and not yes:
            raise Failure(
                ExitCode.REFUSED,
                f"this has changed since you confirmed it, so nothing was written: now {edit.risk}",
            )
        return edit

    return checked


def confirm(risks: Sequence[str], *, yes: bool) -> None:
    """Ask a person about what happens to nodes; without a terminal `--yes` is needed."""
    told = [printable(risk) for risk in risks if risk]
    if not told or yes:
        return
    if not sys.stdin.isatty():
        raise Failure(ExitCode.REFUSED, f"{'; '.join(told)}: confirm it with --yes")
    for risk in told:
        print(f"{risk}.", file=sys.stderr)
    # The handler of asyncio only asks the loop to stop, which waits for this line.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, handler)
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure(ExitCode.REFUSED, "not confirmed; nothing was written")
