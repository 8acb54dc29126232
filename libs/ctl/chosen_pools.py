"""The pools that a person means. Pure."""

from collections.abc import Sequence

from libs.ctl.cluster import Rollout
from libs.ctl.failures import ExitCode, Failure


def chosen_pools(
    rollouts: Sequence[Rollout], pool: str, *, every: bool, verb: str = ""
) -> list[str]:
    """Return the pools that a person means; fail with their names if that is not clear.

    `verb` is the one of `sluice upgrade` that also takes all; empty: there is none.
    """
    names = [rollout.metadata.name for rollout in rollouts]
    known = ", ".join(names) or "none"
    if pool and pool not in names:
        raise unknown_pool(pool, names)
    if pool and every:
        raise Failure(ExitCode.WRONG_ARGUMENTS, f"name {pool}, or all pools with --all, not both")
    if pool:
        return [pool]
    if not names:
        raise Failure(ExitCode.NOT_FOUND, "there is no pool: no policy selects a node with GPUs")
    if len(names) > 1 and not every:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"there are several pools: {known}; name one"
            + (f", or all with `sluice upgrade {verb} --all`" if verb else ""),
        )
    return names


def unknown_pool(pool: str, names: Sequence[str]) -> Failure:
    """Return that there is no such pool, with those there are, and the one of such a policy."""
    of_policy = [name for name in names if name.partition("-")[2] == pool]
    meant = f"; did you mean {of_policy[0]}?" if len(of_policy) == 1 else ""
    known = ", ".join(names) or "none"
    return Failure(ExitCode.NOT_FOUND, f"there is no pool {pool!r}; pools: {known}{meant}")
