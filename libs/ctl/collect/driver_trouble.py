"""Collect why drivers do not start, from the pods of the nodes that wait for theirs."""

import asyncio
from collections.abc import Mapping
from typing import Final

from libs.contracts.node import NodeRecord
from libs.ctl.checks import DRIVER_APP
from libs.ctl.cluster import Cluster
from libs.ctl.driver_trouble import driver_trouble
from libs.ctl.failures import ExitCode, Failure
from libs.kube.resources import PODS

_MOST_NODES: Final = 12
"""Of more nodes at once not all are asked about: `why` tells of each."""


async def driver_troubles(
    cluster: Cluster, nodes: Mapping[str, NodeRecord | None]
) -> dict[str, str]:
    """Return what is wrong with the drivers of nodes that wait for theirs; nothing without rights.

    The nodes are given with their records.
    """
    if not nodes:
        return {}
    asked = list(nodes.items())[:_MOST_NODES]
    namespace = await cluster.namespace()
    try:
        found = await asyncio.gather(
            *(
                cluster.list(
                    PODS,
                    labels=f"app={DRIVER_APP}",
                    namespace=namespace,
                    fields=f"spec.nodeName={name}",
                )
                for name, _ in asked
            )
        )
    except Failure as failure:
        if failure.code is not ExitCode.NOT_ALLOWED:
            raise
        return {}
    troubles = {
        name: driver_trouble(pods, record)
        for (name, record), pods in zip(asked, found, strict=True)
    }
    return {name: trouble for name, trouble in troubles.items() if trouble}
