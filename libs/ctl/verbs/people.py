"""Verbs by which people steer upgrades and take nodes, written to Kubernetes with their rights."""

from typing import Annotated

import typer

from libs.ctl.command import verb
from libs.ctl.options import MOST, Access, Pool, PoolOption, one_pool

Every = Annotated[bool, typer.Option("--all", help="All pools.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask what happens to nodes.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Also where a chart or a pipeline writes it, from which it takes."
    ),
]
Reason = Annotated[str, typer.Option(help="Why, for others to read.")]
Nodes = Annotated[list[str], typer.Argument(metavar="NODE…", help="Full names of Nodes.")]


def register(app: typer.Typer) -> None:
    """Add `sluice upgrade` and `sluice lease` to the command."""
    upgrade = typer.Typer(
        help="Start, pause, resume, release and repair upgrades, through Kubernetes alone.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    verb(upgrade, "start")(start)
    verb(upgrade, "pause")(pause)
    verb(upgrade, "resume")(resume)
    verb(upgrade, "freeze")(freeze)
    verb(upgrade, "release")(release)
    verb(upgrade, "retry")(retry)
    verb(upgrade, "skip")(skip)
    verb(upgrade, "unskip")(unskip)
    verb(upgrade, "adopt")(adopt)
    verb(upgrade, "forget")(forget)
    app.add_typer(upgrade, name="upgrade")
    lease = typer.Typer(
        help="Take a node for work on its machine, and return it; through Kubernetes alone.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    verb(lease, "take")(take)
    verb(lease, "return")(give_back)
    app.add_typer(lease, name="lease")


def start(
    access: Access,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Driver to upgrade to.")],
    pool: Pool = "",
    *,
    pool_option: PoolOption = "",
    force: Force = False,
    yes: Yes = False,
) -> None:
    """Make a pool's policy want another driver version.

    Where a chart or a pipeline writes the version, it says where to change it, and writes nothing.

    \b
    sluice upgrade start 580.95.05
    """
    from libs.ctl.run import driver_version

    chosen = one_pool(pool, pool_option)
    driver_version.start(access, version, pool=chosen, force=force, yes=yes)


def pause(
    access: Access,
    pool: Pool = "",
    *,
    pool_option: PoolOption = "",
    every: Every = False,
    reason: Reason = "",
) -> None:
    """Start no more nodes; nodes in flight finish.

    \b
    sluice upgrade pause --reason "GPUs fall off the bus"
    """
    from libs.contracts.rollout import Brake
    from libs.ctl.run.upgrade import set_brake

    pool = one_pool(pool, pool_option)
    set_brake(access, pool, Brake.PAUSE, reason=reason, every=every, yes=True)


def resume(
    access: Access,
    pool: Pool = "",
    *,
    pool_option: PoolOption = "",
    every: Every = False,
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """End a pause or a freeze: nodes start again within the budget.

    \b
    sluice upgrade resume --yes
    """
    from libs.contracts.rollout import Brake
    from libs.ctl.run.upgrade import set_brake

    pool = one_pool(pool, pool_option)
    set_brake(access, pool, Brake.NONE, reason=reason, every=every, yes=yes)


def freeze(
    access: Access,
    pool: Pool = "",
    *,
    pool_option: PoolOption = "",
    every: Every = False,
    reason: Reason = "",
) -> None:
    """Let no node move, not even those in flight; timeouts stop.

    \b
    sluice upgrade freeze --reason "the storage is down"
    """
    from libs.contracts.rollout import Brake
    from libs.ctl.run.upgrade import set_brake

    pool = one_pool(pool, pool_option)
    set_brake(access, pool, Brake.FREEZE, reason=reason, every=every, yes=True)


def release(
    access: Access,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Driver that is halted.")],
    pool: Annotated[
        str,
        typer.Argument(metavar="[POOL]", help="Where several pools have the version."),
    ] = "",
    failures: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            help="Failures to accept in all; by default those so far.",
            show_default=False,
        ),
    ] = None,
    *,
    pool_option: PoolOption = "",
    target: Annotated[str, typer.Option(help="Where the version is several targets.")] = "",
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """End the halt of a driver version by accepting its failures.

    \b
    sluice upgrade release 580.95.05 --failures 2
    """
    from libs.ctl.run import upgrade

    upgrade.release(
        access,
        version,
        failures=failures,
        pool=one_pool(pool, pool_option),
        target=target,
        reason=reason,
        yes=yes,
    )


def retry(access: Access, nodes: Nodes, yes: Yes = False) -> None:
    """Request another attempt on done or failed nodes.

    \b
    sluice upgrade retry node-7
    """
    _edit(access, "retry", nodes, yes=yes)


def skip(access: Access, nodes: Nodes) -> None:
    """Keep nodes out of upgrades; an upgrade in flight still finishes.

    \b
    sluice upgrade skip node-7
    """
    _edit(access, "skip", nodes, yes=True)


def unskip(access: Access, nodes: Nodes, yes: Yes = False) -> None:
    """Let upgrades start on nodes again.

    \b
    sluice upgrade unskip node-7
    """
    _edit(access, "unskip", nodes, yes=yes)


def adopt(access: Access, nodes: Nodes, yes: Yes = False) -> None:
    """Manage nodes again whose record is lost.

    \b
    sluice upgrade adopt node-7
    """
    _edit(access, "adopt", nodes, yes=yes)


def forget(access: Access, nodes: Nodes, yes: Yes = False) -> None:
    """Remove what was written on failed nodes, or on nodes whose record is lost.

    \b
    sluice upgrade forget node-7
    """
    _edit(access, "forget", nodes, yes=yes)


def take(
    access: Access,
    nodes: Nodes,
    reason: Annotated[str, typer.Option(help="What you do on the nodes, for others to read.")],
) -> None:
    """Keep nodes free of operations while you work on them; one in flight ends first.

    Until they are returned, they count as unavailable. Pods stay on them.

    \b
    sluice lease take node-9 --reason "swap a riser"
    """
    from libs.ctl.run import lease

    lease.take(access, nodes, reason=reason)


def give_back(access: Access, nodes: Nodes, yes: Yes = False) -> None:
    """Let operations start again on nodes that a person took.

    \b
    sluice lease return node-9 --yes
    """
    from libs.ctl.run import lease

    lease.give_back(access, nodes, yes=yes)


def _edit(access: Access, action: str, nodes: list[str], *, yes: bool) -> None:
    from libs.ctl.run.upgrade import edit_nodes

    edit_nodes(access, action, nodes, yes=yes)
