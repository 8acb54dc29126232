"""Read a file of policies that are not applied yet, and what they would change in the cluster."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from libs.ctl.cluster import Cluster
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.policy_change import PolicyChange, policy_change
from libs.ctl.policy_file import PLANNED_KINDS, FilePolicy, PolicyFile, parse_policy_file
from libs.kube.resources import CustomObject, custom_resource
from libs.kube.views import Object
from libs.policy.kinds.common import Kind
from libs.policy.owners import NodeLabels

_STDIN: Final = "-"


def read_policy_file(path: str) -> PolicyFile:
    """Read a file, or standard input."""
    name = "standard input" if path == _STDIN else path
    try:
        content = sys.stdin.read().encode() if path == _STDIN else Path(path).read_bytes()
    except OSError as error:
        raise Failure(ExitCode.NOT_FOUND, f"{name} cannot be read: {error.strerror}") from error
    except UnicodeError as error:
        raise Failure(ExitCode.WRONG_ARGUMENTS, f"{name} is no text: {error}") from error
    return parse_policy_file(name, content)


async def gather_change(
    cluster: Cluster,
    file: PolicyFile,
    nodes: Iterable[Object],
    *,
    pool: str,
    name_of: Callable[[FilePolicy], str],
) -> PolicyChange:
    """Return what the file would change in a pool; `name_of` returns how people know the pool."""
    live = {kind.name: await _policies(cluster, kind) for kind in PLANNED_KINDS.values()}
    labels = [NodeLabels(name=each.metadata.name, labels=each.metadata.labels) for each in nodes]
    return policy_change(file, live, labels, pool=pool, name_of=name_of)


async def _policies(cluster: Cluster, kind: Kind) -> tuple[CustomObject, ...]:
    """Return the policies of a kind; none where the API server does not know it."""
    try:
        return await cluster.list(custom_resource(kind, CustomObject))
    except Failure as failure:
        if failure.code is ExitCode.NOT_FOUND:
            return ()
        raise
