"""`sluice upgrade`: people steer upgrades, through Kubernetes alone, and so without NATS.

Each verb imports what it needs when it runs.
"""

import asyncio
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
    """Add `sluice upgrade` to the command."""
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
    from libs.ctl.cluster import open_cluster
    from libs.ctl.driver_version import DriverPolicy, policy_of, stops_of, wanted_version
    from libs.ctl.edits import Edit
    from libs.ctl.versions import check_version
    from libs.ctl.writes import write_all
    from libs.policy.pool import pool_key

    check_version(version)

    async def run() -> None:
        async with open_cluster(access) as cluster:
            owner, found = await policy_of(cluster, one_pool(pool, pool_option))
            kind = owner.kind.name
            stops = await stops_of(cluster, pool_key(kind, found.metadata.name), version)

            def decide(seen: DriverPolicy) -> Edit:
                return wanted_version(
                    seen, owner.field, version, kind=kind, force=force, stops=stops
                )

            await write_all(cluster, owner.resource, [found], decide, yes=yes)

    asyncio.run(run())


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
    pool = one_pool(pool, pool_option)
    _set_brake(access, "pause", pool, reason=reason, every=every, yes=True)


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
    pool = one_pool(pool, pool_option)
    _set_brake(access, "resume", pool, reason=reason, every=every, yes=yes)


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
    pool = one_pool(pool, pool_option)
    _set_brake(access, "freeze", pool, reason=reason, every=every, yes=True)


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
    from libs.ctl import brakes
    from libs.ctl.cluster import open_cluster
    from libs.ctl.edits import Edit
    from libs.ctl.writes import write_all
    from libs.fleet.pools import ROLLOUTS, Rollout

    async def run() -> None:
        async with open_cluster(access) as cluster:
            rollouts = await cluster.rollouts()
            versions = await cluster.versions(rollouts)
            halted = brakes.choose_halted(
                brakes.halted_targets(rollouts, versions),
                version,
                pool=one_pool(pool, pool_option),
                target=target,
            )
            accepted = len(halted.record.harmed) if failures is None else failures
            by = brakes.Signature(user=await cluster.user(), reason=reason)

            def decide(seen: Rollout) -> Edit:
                return brakes.release(
                    halted.pool, seen.status, halted.target, halted.version, accepted, by=by
                )

            seen = [each for each in rollouts if each.metadata.name == halted.pool]
            await write_all(cluster, ROLLOUTS, seen, decide, yes=yes)

    asyncio.run(run())


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


def _set_brake(
    access: Access, verb: str, pool: str, *, reason: str, every: bool, yes: bool
) -> None:
    """Set the brake of a pool, of the only one, or of all."""
    from libs.contracts.rollout import Brake
    from libs.ctl import brakes
    from libs.ctl.chosen_pools import chosen_pools
    from libs.ctl.cluster import open_cluster
    from libs.ctl.edits import Edit
    from libs.ctl.writes import write_all
    from libs.fleet.pools import ROLLOUTS, Rollout

    brake = {"pause": Brake.PAUSE, "freeze": Brake.FREEZE, "resume": Brake.NONE}[verb]

    async def run() -> None:
        async with open_cluster(access) as cluster:
            rollouts = await cluster.rollouts()
            names = chosen_pools(rollouts, pool, every=every, verb=verb)
            by_name = {each.metadata.name: each for each in rollouts}
            by = brakes.Signature(user=await cluster.user(), reason=reason)

            def decide(seen: Rollout) -> Edit:
                return brakes.set_brake(seen.metadata, seen.spec, seen.status, brake, by=by)

            await write_all(cluster, ROLLOUTS, [by_name[name] for name in names], decide, yes=yes)

    asyncio.run(run())


def _edit(access: Access, action: str, nodes: list[str], *, yes: bool) -> None:
    """Label or annotate nodes, as a person does with kubectl."""
    from libs.ctl import edits
    from libs.ctl.cluster import open_cluster
    from libs.ctl.writes import write_nodes
    from libs.kube import views

    edits_by_name = {
        "retry": edits.retry,
        "skip": edits.skip,
        "unskip": edits.unskip,
        "adopt": edits.adopt,
        "forget": edits.forget,
    }

    def decide(seen: views.Object) -> edits.Edit:
        return edits_by_name[action](seen.metadata)

    async def run() -> None:
        async with open_cluster(access) as cluster:
            if action in ("adopt", "forget"):  # the others a GPU Operator carries out, too
                await cluster.check_installed()
            await write_nodes(cluster, nodes, decide, yes=yes)

    asyncio.run(run())
