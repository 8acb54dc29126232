"""The pools that a person means. Pure."""

from collections.abc import Sequence

from libs.ctl.failures import ExitCode, Failure
from libs.fleet.pools import Rollout


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
        raise _no_pool()
    if len(names) > 1 and not every:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"there are several pools: {known}; name one"
            + (f", or all with `sluice upgrade {verb} --all`" if verb else ""),
        )
    return names


def only_pool(pools: list[str], *, more: str = "") -> str:
    """Return the only pool; fail with their names if there are several, and what else is there."""
    if len(pools) == 1:
        return pools[0]
    if not pools:
        raise _no_pool()
    told = f"there are several pools; name one of: {', '.join(pools)}"
    raise Failure(ExitCode.WRONG_ARGUMENTS, f"{told}; {more}" if more else told)


def unknown_pool(pool: str, names: Sequence[str]) -> Failure:
    """Return the failure of an unknown name, with the pools, and the one of a policy so called."""
    of_policy = [name for name in names if name.partition("-")[2] == pool]
    meant = f"; did you mean {of_policy[0]}?" if len(of_policy) == 1 else ""
    known = ", ".join(names) or "none"
    return Failure(ExitCode.NOT_FOUND, f"there is no pool {pool!r}; pools: {known}{meant}")


def _no_pool() -> Failure:
    return Failure(ExitCode.NOT_FOUND, "there is no pool: no policy selects a node with GPUs")
