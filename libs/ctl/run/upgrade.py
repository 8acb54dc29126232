"""Run the verbs of `sluice upgrade`: through Kubernetes alone, so that they work without NATS."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from libs.contracts.rollout import SHORT_TARGET, Brake, TargetRecord
from libs.ctl import brakes, edits
from libs.ctl.brakes import Signature
from libs.ctl.chosen_pools import chosen_pools
from libs.ctl.cluster import LABELLED_NODES, Cluster, open_cluster
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.text import plural, printable
from libs.fleet.names import version_name
from libs.fleet.pools import ROLLOUTS, Rollout
from libs.kube import views

V = TypeVar("V", bound=views.Object)

NODE_EDITS = {
    "retry": edits.retry,
    "skip": edits.skip,
    "unskip": edits.unskip,
    "adopt": edits.adopt,
    "forget": edits.forget,
}


_OURS = frozenset({"adopt", "forget"})
"""Actions that only Sluice carries out; the others a GPU Operator does, too."""
_BRAKE_VERBS = {Brake.PAUSE: "pause", Brake.FREEZE: "freeze", Brake.NONE: "resume"}


class Halted:
    """A target that is halted in a pool."""

    def __init__(self, pool: str, target: str, version: str, record: TargetRecord) -> None:
        self.pool = pool
        self.target = target
        self.version = version
        self.record = record

    def __str__(self) -> str:
        failed = plural(len(self.record.failed), "node")
        return f"{self.pool} --target {self.target[:SHORT_TARGET]} ({failed} failed)"


def set_brake(
    access: Access, pool: str, brake: Brake, *, reason: str, every: bool, yes: bool
) -> None:
    """Set the brake of a pool, of the only one, or of all."""

    async def run() -> None:
        async with open_cluster(access) as cluster:
            rollouts = await cluster.rollouts()
            names = chosen_pools(rollouts, pool, every=every, verb=_BRAKE_VERBS[brake])
            by_name = {each.metadata.name: each for each in rollouts}
            by = Signature(user=await cluster.user(), reason=reason)

            def decide(seen: Rollout) -> Edit:
                return brakes.set_brake(seen.metadata, seen.spec, seen.status, brake, by=by)

            planned = [(name, decide(by_name[name])) for name in names]
            confirm([edit.risk for _, edit in planned], yes=yes)
            for name, edit in planned:
                done = await _write_rollout(cluster, name, decide, confirmed=edit, yes=yes)
                print(printable(done))

    asyncio.run(run())


def release(
    access: Access,
    version: str,
    *,
    failures: int | None,
    pool: str,
    target: str,
    reason: str,
    yes: bool,
) -> None:
    """Accept failures of a version, which ends its halt."""

    async def run() -> None:
        async with open_cluster(access) as cluster:
            rollouts = await cluster.rollouts()
            versions = await cluster.versions(rollouts)
            halted = choose_halted(
                halted_targets(rollouts, lambda digest: version_name(digest, versions)),
                version,
                pool=pool,
                target=target,
            )
            accepted = len(halted.record.harmed) if failures is None else failures
            by = Signature(user=await cluster.user(), reason=reason)

            def decide(seen: Rollout) -> Edit:
                return brakes.release(
                    halted.pool, seen.status, halted.target, halted.version, accepted, by=by
                )

            (rollout,) = (each for each in rollouts if each.metadata.name == halted.pool)
            planned = decide(rollout)
            confirm([planned.risk], yes=yes)
            done = await _write_rollout(cluster, halted.pool, decide, confirmed=planned, yes=yes)
            print(printable(done))

    asyncio.run(run())


def halted_targets(rollouts: Sequence[Rollout], name: Callable[[str], str]) -> list[Halted]:
    """Return all targets that are halted, by pool and target."""
    return [
        Halted(rollout.metadata.name, target, name(target), record)
        for rollout in rollouts
        for target, record in sorted(rollout.status.targets.items())
        if record.is_halted
    ]


def choose_halted(halted: Sequence[Halted], version: str, *, pool: str, target: str) -> Halted:
    """Return the halted target that a version means; fail with a list if there are several."""
    found = [each for each in halted if each.version == version and pool in ("", each.pool)]
    chosen = [each for each in found if each.target.startswith(target)]
    if len(chosen) == 1:
        return chosen[0]
    if not found:
        known = ", ".join(sorted({f"{each.version} in {each.pool}" for each in halted}))
        raise Failure(
            ExitCode.NOT_FOUND,
            f"{version or repr(version)} is not halted{f' in {pool}' if pool else ''};"
            f" halted: {known or 'none'}",
        )
    listed = "; ".join(map(str, chosen or found))
    problem = "is several targets" if chosen else f"has no target {target!r}"
    raise Failure(ExitCode.WRONG_ARGUMENTS, f"{version} {problem}; choose one: {listed}")


async def _write_rollout(
    cluster: Cluster,
    name: str,
    decide: Callable[[Rollout], Edit],
    *,
    confirmed: Edit,
    yes: bool,
) -> str:
    return (await cluster.write(ROLLOUTS, name, as_confirmed(decide, confirmed, yes=yes))).done


def edit_nodes(access: Access, action: str, names: Sequence[str], *, yes: bool) -> None:
    """Label or annotate nodes, as a person does with kubectl."""

    def decide(seen: views.Object) -> Edit:
        return NODE_EDITS[action](seen.metadata)

    async def run() -> None:
        async with open_cluster(access) as cluster:
            if action in _OURS:
                await cluster.check_installed()
            await write_nodes(cluster, names, decide, yes=yes)

    asyncio.run(run())


async def write_nodes(
    cluster: Cluster,
    names: Sequence[str],
    decide: Callable[[views.Object], Edit],
    *,
    yes: bool,
    remark: Callable[[str, Edit], Awaitable[str]] | None = None,
) -> None:
    """Decide all nodes, ask about the risks once, then write each node and print what was done.

    `remark` returns what is added to that about a node.
    """
    names = list(dict.fromkeys(names))  # a node may be named twice
    planned = [decide(await cluster.node(name)) for name in names]
    confirm([edit.risk for edit in planned], yes=yes)
    for name, confirmed in zip(names, planned, strict=True):
        checked = as_confirmed(decide, confirmed, yes=yes)
        edit = await cluster.write(LABELLED_NODES, name, checked)
        more = "" if remark is None else await remark(name, edit)
        print(printable(f"{edit.done}{more}"))


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
