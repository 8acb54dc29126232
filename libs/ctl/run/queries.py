"""Run the verbs that only read: gather, then show. Each imports what it needs."""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from libs.ctl.answers import NodeAnswer, PlanView, PoolPlans
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.output import Format, PictureFormat, progress, run_shown, show
from libs.fleet.status import EventLine, Status

if TYPE_CHECKING:
    from libs.ctl.observe.answers import ObservedNode, ObservedStatus
    from libs.ctl.observe.plan import ObservedPlan


def show_status(access: Access, name: str, output: Format | None) -> None:
    from libs.ctl.collect.status import gather_status

    answer = run_shown("reading the fleet", gather_status(access, name))
    if isinstance(answer, NodeAnswer):
        _show_node(answer, output)
    elif isinstance(answer, Status):
        _show_pools(answer, output)
    else:
        _show_observed(answer, output)


def show_why(access: Access, node: str, output: Format | None) -> None:
    from libs.ctl.collect.node import gather_why

    answer = run_shown(f"asking about {node}", gather_why(access, node))
    if isinstance(answer, NodeAnswer):
        _show_node(answer, output)
    else:
        _show_observed(answer, output)


def _show_pools(status: Status, output: Format | None) -> None:
    from libs.ctl.views.status import status_view

    now = time.time()
    show(
        status,
        lambda width, wide: status_view(status, now=now, width=width, wide=wide),
        format=output,
    )
    if status.exit_code:
        raise SystemExit(status.exit_code)


def _show_node(answer: NodeAnswer, output: Format | None) -> None:
    from libs.ctl.views.node import node_view

    now = time.time()
    show(answer, lambda _, wide: node_view(answer, now=now, wide=wide), format=output)


def _show_observed(
    answer: "ObservedStatus | ObservedNode | ObservedPlan", output: Format | None
) -> None:
    from libs.ctl.views.observe import observed_view

    now = time.time()
    show(
        answer,
        lambda width, wide: observed_view(answer, now=now, width=width, wide=wide),
        format=output,
    )


def show_plan(
    access: Access,
    *,
    pool: str,
    filename: str,
    version: str,
    max_unavailable: str,
    max_parallel: int | None,
    finish_by: str,
    output: PictureFormat | None,
) -> None:
    """Ask for a plan, and write it as text, as data or as a picture."""
    from libs.contracts.queries import PlanQuery
    from libs.ctl.collect.plan import gather_plan
    from libs.ctl.times import parse_finish
    from libs.ctl.versions import check_version

    if version:
        check_version(version)
    query = PlanQuery(
        pool=pool,
        driver_version=version,
        max_unavailable=max_unavailable,
        max_parallel=max_parallel,
        finish_by=parse_finish(finish_by),
    )
    file = None
    if filename:
        from libs.ctl.collect.policy_file import read_policy_file

        file = read_policy_file(filename)
    is_bare = output is None and file is None and query == PlanQuery(pool="")
    work = gather_plan(access, query, file, may_be_several=is_bare)
    answer = run_shown("computing the plan", work)
    if isinstance(answer, PlanView):
        _show_plan(answer, output)
    elif isinstance(answer, PoolPlans):
        _show_plans(answer)
    elif output is PictureFormat.HTML or output is PictureFormat.SVG:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"-o {output.value}: there is no picture of a plan without Sluice's scheduler; use"
            " -o json, yaml or wide",
        )
    else:
        _show_observed(answer, _as_format(output))


def _show_plan(answer: PlanView, output: PictureFormat | None) -> None:
    if output is PictureFormat.HTML:
        from libs.ctl.views.plan_html import plan_html

        sys.stdout.write(plan_html(answer))
    elif output is PictureFormat.SVG:
        from libs.ctl.views.plan_html import plan_svg

        sys.stdout.write(plan_svg(answer))
    else:
        from libs.ctl.views.plan import plan_view

        show(
            answer,
            lambda width, wide: plan_view(answer, width=width, wide=wide),
            format=_as_format(output),
        )


def _show_plans(answer: PoolPlans) -> None:
    from libs.ctl.views.plan import plans_view

    show(answer, lambda _width, _wide: plans_view(answer), format=None)


def _as_format(output: PictureFormat | None) -> Format | None:
    """Return how text or data are written; a picture is neither."""
    return None if output is None else Format(output.value)


def show_comparison(
    access: Access, *, pool: str, version: str, output: PictureFormat | None
) -> None:
    from libs.ctl.collect.comparison import gather_comparison
    from libs.ctl.views.comparison import comparison_html, comparison_svg, comparison_view

    found = run_shown("reading events", gather_comparison(access, pool=pool, version=version))
    if output is PictureFormat.HTML:
        sys.stdout.write(comparison_html(found))
    elif output is PictureFormat.SVG:
        sys.stdout.write(comparison_svg(found))
    else:
        show(
            {**msgspec.structs.asdict(found), "error": found.error},
            lambda width, wide: comparison_view(found, width=width, wide=wide),
            format=_as_format(output),
        )


def show_gpus(access: Access, node: str, output: Format | None) -> None:
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


def show_events(
    access: Access,
    *,
    follow: bool,
    since: str,
    node: str,
    pool: str,
    kind: str,
    output: Format | None,
) -> None:
    """Write each event as it is read: an object in a line for programs.

    People are told what changed, unless they follow all or ask for all.
    """
    from contextlib import aclosing

    from libs.contracts.events import NO_CHANGE
    from libs.ctl.collect.events import EventFilter, follow_events, require_node
    from libs.ctl.times import parse_since
    from libs.ctl.views.events import ChangedLines, FollowedEvents, nothing_to_show

    wanted = EventFilter(since=parse_since(since), node=node, pool=pool, kind=kind)
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


def _print_event(event: EventLine, output: Format | None) -> None:
    from libs.ctl.output import print_view
    from libs.ctl.text import escaped
    from libs.ctl.views.events import event_line

    if output is Format.JSON:
        print(escaped(msgspec.json.encode(event).decode()), flush=True)
    elif output is Format.YAML:
        show([event], lambda _width, _wide: "", format=output)
    else:
        print_view(event_line(event))


def show_live(access: Access, pool: str, telemetry: str) -> None:
    from libs.ctl.watch.program import watch

    if code := asyncio.run(watch(access, pool, telemetry)):
        raise SystemExit(code)


def serve_web(access: Access, *, host: str, port: int, hosts: Sequence[str]) -> None:
    from libs.ctl.web.run import run_web

    asyncio.run(run_web(access, host=host, port=port, hosts=hosts))


def show_doctor(access: Access, output: Format | None) -> None:
    from libs.ctl.checks import Verdict, worst
    from libs.ctl.doctor import examine
    from libs.ctl.failures import ExitCode
    from libs.ctl.views.doctor import doctor_view

    found = run_shown("looking at everything", examine(access))
    show(found, lambda _width, wide: doctor_view(found, wide=wide), format=output)
    if worst(found) is Verdict.FAULT:
        raise SystemExit(ExitCode.FAULT_FOUND)


def show_audit(access: Access, logs: list[str], output: Format | None) -> None:
    from pathlib import Path

    from libs.ctl.collect.audit import audit
    from libs.ctl.failures import ExitCode
    from libs.ctl.views.audit import audit_view

    with progress("nodes' journals read") as report:
        found = asyncio.run(audit(access, [Path(log) for log in logs], on_progress=report))
    show(found, lambda width, wide: audit_view(found, width=width, wide=wide), format=output)
    if any(each.violations for each in found.invariants):
        raise SystemExit(ExitCode.FAULT_FOUND)


def show_version(output: Format | None) -> None:
    from importlib.metadata import version

    found = version("sluice")
    show({"version": found}, lambda _width, _wide: f"sluice {found}", format=output)
