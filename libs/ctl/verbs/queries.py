"""Verbs that only read: status, why, plan, events, watch, gpus, web, doctor, audit and version."""

from typing import Annotated

import typer

from libs.ctl.command import verb
from libs.ctl.options import MOST, Access, Pool, PoolOption, one_pool
from libs.ctl.output import Format, PictureFormat

Output = Annotated[
    Format | None,
    typer.Option("--output", "-o", help="For programs, or with more columns.", show_default=False),
]
PictureOutput = Annotated[
    PictureFormat | None,
    typer.Option(
        "--output",
        "-o",
        help="For programs, with more columns, or as a picture in one file.",
        show_default=False,
    ),
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
    from libs.ctl.run.queries import show_status

    show_status(access, name, output)


def why(access: Access, node: Node, output: Output = None) -> None:
    """Tell why a node is not in its wanted state, and who can end the wait.

    \b
    sluice why node-7
    """
    from libs.ctl.run.queries import show_why

    show_why(access, node, output)


def plan(
    access: Access,
    pool: Pool = "",
    *,
    pool_option: PoolOption = "",
    filename: Annotated[
        str,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="As if this file were applied (-: standard input); other options override it.",
        ),
    ] = "",
    version: Annotated[str, typer.Option(help="Another driver version.")] = "",
    max_unavailable: Annotated[str, typer.Option(help="Another limit, as 3 or 20%.")] = "",
    max_parallel: Annotated[
        int | None,
        typer.Option(min=0, max=MOST, help="Another limit.", show_default=False),
    ] = None,
    finish_by: Annotated[
        str, typer.Option(metavar="TIME", help="Find the limit that ends by then: 2h, or a time.")
    ] = "",
    compare: Annotated[
        bool, typer.Option("--compare", help="Set the last rollout beside its plan.")
    ] = False,
    output: PictureOutput = None,
) -> None:
    """Forecast a rollout: when each node starts and ends, and what it costs. Nothing is changed.

    \b
    sluice plan
    sluice plan --version 580.95.05 --max-unavailable 3
    sluice plan --version 580.95.05 --finish-by 6h
    sluice plan -f policy.yaml
    sluice plan -o html > plan.html
    sluice plan --compare
    """
    from libs.ctl.run.queries import show_comparison, show_plan

    pool = one_pool(pool, pool_option)
    if compare:
        if filename or max_unavailable or finish_by or max_parallel is not None:
            raise typer.BadParameter(
                "--compare looks back: neither a file nor another limit can be given with it"
            )
        show_comparison(access, pool=pool, version=version, output=output)
        return
    show_plan(
        access,
        pool=pool,
        filename=filename,
        version=version,
        max_unavailable=max_unavailable,
        max_parallel=max_parallel,
        finish_by=finish_by,
        output=output,
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
    from libs.ctl.run.queries import show_events

    show_events(
        access,
        follow=follow,
        since=since,
        node=node,
        pool=one_pool(pool, pool_option),
        kind=kind,
        output=output,
    )


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
    from libs.ctl.run.queries import show_live

    show_live(access, pool, telemetry)


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
    from libs.ctl.run.queries import show_gpus

    show_gpus(access, node, output)


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
    from libs.ctl.run.queries import serve_web

    serve_web(access, host=host, port=port, hosts=allow_host or ())


def doctor(access: Access, output: Output = None) -> None:
    """Look at everything that Sluice needs, and say what to do about each fault.

    \b
    sluice doctor
    """
    from libs.ctl.run.queries import show_doctor

    show_doctor(access, output)


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
    from libs.ctl.run.queries import show_audit

    show_audit(access, audit_log or [], output)


def version(output: Output = None) -> None:
    """Show the version of this command.

    \b
    sluice version
    """
    from libs.ctl.run.queries import show_version

    show_version(output)
