"""Drivers as people know them: by version, where decisions name them by digest."""

import re
from typing import Final

from libs.contracts.rollout import release_command
from libs.rollout.views.pool import PoolView

_DIGEST: Final = re.compile(r"(?<![\w-])[0-9a-f]{32}(?![\w-])")
"""The digest of a target or a build. Names of DaemonSets and pods contain digests too, and keep
them: with a version in it nobody could find the object by its name."""


class DriverNames:
    """The versions of the drivers of all pools, also of those that were wanted before."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}
        """By target and by label: texts name either."""
        self._failures: dict[tuple[str, str], int] = {}
        """How many nodes of a pool failed on a target, as far as its Rollout says."""

    def add(self, pool: PoolView) -> None:
        if pool.target and pool.version:
            builds = pool.builds.get(pool.target, {}).values()
            digests = (pool.target, *(build.label for build in builds))
            self._versions |= dict.fromkeys(digests, pool.version)
        records = {} if pool.rollout is None else pool.rollout.status.targets
        for target, record in records.items():
            self._failures[pool.key, target] = len(record.failed)

    def named(self, text: str) -> str:
        """Replace digests by the versions that people know."""
        return _DIGEST.sub(lambda found: self._versions.get(found[0], found[0]), text)

    def release(self, pool: str, target: str) -> str:
        """Return the command that ends a halt of the target; empty: its version is not known."""
        version, failures = self._versions.get(target, ""), self._failures.get((pool, target))
        return release_command(pool, version, failures or None) if version else ""
