"""Verbs that only read the fleet: status, why, events, watch, gpus, web, doctor and audit.

Each imports what it needs when it runs, so that help and the others start at once.
"""

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from libs.ctl.command import verb
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access, PoolOption, one_pool
from libs.ctl.output import Format, progress, run_shown, show
from libs.ctl.verbs.plan import plan

if TYPE_CHECKING:
    from libs.ctl.answers import NodeAnswer
    from libs.ctl.observe.answers import ObservedNode, ObservedStatus
    from libs.fleet.status import EventLine, Status

Output = Annotated[
    Format | None,
    typer.Option("--output", "-o", help="For programs, or with more columns.", show_default=False),
]
ShownPool = Annotated[str, typer.Argument(metavar="[POOL]", help="By default all.")]
Node = Annotated[str, typer.Argument(metavar="NODE", help="Full name of a Node.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command."""
    verb(app, "status")(status)
    verb(app, "why")(why)
    verb(app, "plan")(plan)
    verb(app, "events")(events)
    verb(app, "watch")(watch)
    verb(app, "gpus")(gpus)
    verb(app, "web")(web)
    verb(app, "doctor")(doctor)
    verb(app, "audit")(audit)
    app.command("version")(version)


def status(
    access: Access,
    name: Annotated[str, typer.Argument(metavar="[POOL|NODE]", show_default=False)] = "",
    output: Output = None,
) -> None:
    """Show pools, their rollouts, and the nodes that are not done.

    \b
    sluice status
    sluice status clusterpolicy-cluster-policy
    sluice status node-7 -o json
    """
    from libs.ctl.collect.status import gather_status

    _show(run_shown("reading the fleet", gather_status(access, name)), output)


def why(access: Access, node: Node, output: Output = None) -> None:
    """Tell why a node is not in its wanted state, and who can end the wait.

    \b
    sluice why node-7
    """
    from libs.ctl.collect.node import gather_why

    _show(run_shown(f"asking about {node}", gather_why(access, node)), output)


def _show(
    answer: "Status | NodeAnswer | ObservedStatus | ObservedNode", output: Format | None
) -> None:
    """Show the fleet or a node of it, whoever looks after it."""
    from libs.ctl.answers import NodeAnswer
    from libs.fleet.status import Status

    now = time.time()
    match answer:
        case NodeAnswer():
            from libs.ctl.views.node import node_view

            show(answer, lambda _, wide: node_view(answer, now=now, wide=wide), format=output)
        case Status():
            from libs.ctl.views.status import status_view

            show(
                answer,
                lambda width, wide: status_view(answer, now=now, width=width, wide=wide),
                format=output,
            )
            if answer.exit_code:
                raise SystemExit(answer.exit_code)
        case _:
            from libs.ctl.views.observe import observed_view

            show(
                answer,
                lambda width, wide: observed_view(answer, now=now, width=width, wide=wide),
                format=output,
            )


def events(
    access: Access,
    pool: ShownPool = "",
    *,
    pool_option: PoolOption = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new ones.")] = False,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Not those before: 90m ago, or a time.")
    ] = "",
    node: Annotated[str, typer.Option(metavar="NODE", help="Of one Node.")] = "",
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="Of one kind; rollout: who or what stopped it.")
    ] = "",
    output: Output = None,
) -> None:
    """Show what changed; events are kept for 30 days. As JSON, one object in a line.

    Commands to agents, and waits of less than ten seconds, are shown with -o wide or --follow.

    \b
    sluice events --since 12h --node node-3
    sluice events --since 12h --kind rollout
    sluice events --follow
    """
    from contextlib import aclosing

    from libs.contracts.events import NO_CHANGE
    from libs.ctl.collect.events import EventFilter, follow_events, require_node
    from libs.ctl.times import parse_since
    from libs.ctl.views.events import ChangedLines, FollowedEvents, nothing_to_show

    wanted = EventFilter(
        since=parse_since(since), node=node, pool=one_pool(pool, pool_option), kind=kind
    )
    shows_all = follow or output is not None or kind in NO_CHANGE
    changed = None if shows_all else ChangedLines()
    followed = FollowedEvents() if follow and output is None else None

    async def run() -> None:
        found = shown = 0
        if follow and node:
            await _warn_of_unknown(access, node)
        async with aclosing(follow_events(access, wanted, follow=follow)) as events:
            async for each in events:
                found += 1
                if changed is not None:
                    lines = changed.of(each)
                else:
                    lines = (each,) if followed is None or followed.is_told(each) else ()
                for line in lines:
                    shown += 1
                    _print_event(line, output)
        for line in changed.rest(time.time()) if changed is not None else ():
            shown += 1
            _print_event(line, output)
        if node and not found:
            await require_node(access, node)
        if not shown:
            print(f"sluice: {nothing_to_show(str(wanted), found)}", file=sys.stderr)

    asyncio.run(run())


async def _warn_of_unknown(access: Access, node: str) -> None:
    """Say that a node is none of the cluster; it may still become one."""
    from libs.ctl.collect.events import require_node

    try:
        await require_node(access, node)
    except Failure as failure:
        print(f"sluice: {failure}; waiting for its events", file=sys.stderr)


def _print_event(event: "EventLine", output: Format | None) -> None:
    import msgspec

    from libs.ctl.output import print_view
    from libs.ctl.text import escaped
    from libs.ctl.views.events import event_line

    if output is Format.JSON:
        print(escaped(msgspec.json.encode(event).decode()), flush=True)
    elif output is Format.YAML:
        show([event], lambda _width, _wide: "", format=output)
    else:
        print_view(event_line(event))


def watch(
    access: Access,
    pool: ShownPool = "",
    telemetry: Annotated[
        str,
        typer.Option(
            envvar="SLUICE_TELEMETRY_URL",
            metavar="URL",
            help="Page of the fleet's GPUs, for how many are busy, and how hot.",
        ),
    ] = "",
) -> None:
    """Show the fleet live in this terminal; keys pause, resume, release and ask why.

    \b
    sluice watch
    """
    from libs.ctl.watch.program import watch

    if code := asyncio.run(watch(access, pool, telemetry)):
        raise SystemExit(code)


def gpus(
    access: Access,
    node: Annotated[str, typer.Argument(metavar="[NODE]", show_default=False)] = "",
    output: Output = None,
) -> None:
    """Show how many GPUs are healthy, and those that are not; of a node, or with -o wide, all.

    \b
    sluice gpus
    sluice gpus node-7 -o wide
    """
    from libs.ctl.collect.gpus import gather_gpus
    from libs.ctl.views.gpus import gpus_view

    found, without = run_shown("reading GPUs", gather_gpus(access, node))
    show(
        found,
        lambda width, wide: gpus_view(
            found, without=without, width=width, every=bool(node), wide=wide
        ),
        format=output,
    )


def web(
    access: Access,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8090,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name by which browsers reach the page."),
    ] = None,
) -> None:
    """Serve a page about the fleet for a browser, until Ctrl-C. Nothing can be changed by it.

    \b
    sluice web
    sluice web --port 9000
    """
    from libs.ctl.web.run import run_web

    asyncio.run(run_web(access, host=host, port=port, hosts=allow_host or ()))


def doctor(access: Access, output: Output = None) -> None:
    """Look at everything that Sluice needs, and say what to do about each fault.

    \b
    sluice doctor
    """
    from libs.ctl.checks import Verdict, worst
    from libs.ctl.doctor import examine
    from libs.ctl.views.doctor import doctor_view

    found = run_shown("looking at everything", examine(access))
    show(found, lambda _width, wide: doctor_view(found, wide=wide), format=output)
    if worst(found) is Verdict.FAULT:
        raise SystemExit(ExitCode.FAULT_FOUND)


def audit(
    access: Access,
    audit_log: Annotated[
        list[str] | None,
        typer.Option(
            "--audit-log", metavar="FILE", help="Log of an API server; once for each file."
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Judge whether Sluice kept its promises, from audit log, events and the agents' journals.

    Promises that cannot be judged are named, with what is missing.

    \b
    sluice audit --audit-log audit.log
    """
    from pathlib import Path

    from libs.ctl.collect.audit import audit as judge
    from libs.ctl.views.audit import audit_view

    with progress("nodes' journals read") as report:
        found = asyncio.run(
            judge(access, [Path(log) for log in audit_log or ()], on_progress=report)
        )
    show(found, lambda width, wide: audit_view(found, width=width, wide=wide), format=output)
    if any(each.violations for each in found.invariants):
        raise SystemExit(ExitCode.FAULT_FOUND)


def version(output: Output = None) -> None:
    """Show the version of this command.

    \b
    sluice version
    """
    from importlib import metadata

    found = metadata.version("sluice")
    show({"version": found}, lambda _width, _wide: f"sluice {found}", format=output)
