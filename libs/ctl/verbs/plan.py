"""`sluice plan`: what a rollout would take, or what the last one took beside its plan."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import MOST, Access, Pool, PoolOption, one_pool
from libs.ctl.output import Format, PictureFormat, run_shown, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from libs.ctl.answers import PlanView
    from libs.ctl.views.timeline import RolloutPage

PictureOutput = Annotated[
    PictureFormat | None,
    typer.Option(
        "--output",
        "-o",
        help="For programs, with more columns, or as a picture in one file.",
        show_default=False,
    ),
]


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
    pool = one_pool(pool, pool_option)
    if compare:
        if filename or max_unavailable or finish_by or max_parallel is not None:
            raise typer.BadParameter(
                "--compare looks back: neither a file nor another limit can be given with it"
            )
        _compare(access, pool, version, output)
        return
    from libs.contracts.queries import PlanQuery
    from libs.ctl.answers import PlanView, PoolPlans
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
        from libs.ctl.views.plan import plans_view

        show(answer, lambda _width, _wide: plans_view(answer), format=None)
    elif output is PictureFormat.HTML or output is PictureFormat.SVG:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"-o {output.value}: there is no picture of a plan without Sluice's scheduler; use"
            " -o json, yaml or wide",
        )
    else:
        from libs.ctl.views.observe import observed_view

        now = time.time()
        show(
            answer,
            lambda width, wide: observed_view(answer, now=now, width=width, wide=wide),
            format=_as_format(output),
        )


def _show_plan(answer: "PlanView", output: PictureFormat | None) -> None:
    from libs.ctl.views.plan import plan_page, plan_view

    def view(width: int, wide: bool) -> "RenderableType":
        return plan_view(answer, width=width, wide=wide)

    _show(answer, view, lambda: plan_page(answer), output)


def _compare(access: Access, pool: str, version: str, output: PictureFormat | None) -> None:
    """Set the last rollout beside its plan."""
    import msgspec

    from libs.ctl.collect.comparison import gather_comparison
    from libs.ctl.views.comparison import comparison_page, comparison_view

    found = run_shown("reading events", gather_comparison(access, pool=pool, version=version))
    answer = {**msgspec.structs.asdict(found), "error": found.error}

    def view(width: int, wide: bool) -> "RenderableType":
        return comparison_view(found, width=width, wide=wide)

    _show(answer, view, lambda: comparison_page(found), output)


def _show(
    answer: object,
    view: "Callable[[int, bool], RenderableType]",
    page: "Callable[[], RolloutPage]",
    output: PictureFormat | None,
) -> None:
    """Write an answer as text, as data or in a file."""
    if output is PictureFormat.HTML:
        from libs.ctl.views.rollout_html import rollout_html

        sys.stdout.write(rollout_html(page()))
    elif output is PictureFormat.SVG:
        from libs.ctl.views.rollout_svg import rollout_svg

        sys.stdout.write(rollout_svg(page()))
    else:
        show(answer, view, format=_as_format(output))


def _as_format(output: PictureFormat | None) -> Format | None:
    """Return how text or data are written; a picture is neither."""
    return None if output is None else Format(output.value)
