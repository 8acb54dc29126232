"""Collect the driver versions that targets stand for."""

from collections.abc import Mapping

from libs.ctl.cluster import open_cluster
from libs.ctl.failures import Failure
from libs.ctl.options import Access


async def known_versions(access: Access) -> Mapping[str, str]:
    """Return the versions of targets, or none where Kubernetes does not answer."""
    try:
        async with open_cluster(access) as cluster:
            return await cluster.versions(await cluster.rollouts())
    except Failure:
        return {}
