"""The metrics that the pod with the exporter's label serves on a real node."""

import re

from tests.system.nodes.installation import NAMESPACE
from tests.system.nodes.kubectl import Kubectl

_READ = ("curl", "localhost:9400/metrics")


async def gpus_with_metrics(kubectl: Kubectl, node: str) -> list[str]:
    """Return the UUIDs of the GPUs whose temperature is served on a node, in order."""
    where = ("--selector", "app=nvidia-dcgm-exporter", "--field-selector", f"spec.nodeName={node}")
    (exporter,) = (await kubectl.get("pods", "--namespace", NAMESPACE, *where))["items"]
    name = exporter["metadata"]["name"]
    page = await kubectl.output("exec", "--namespace", NAMESPACE, name, "--", *_READ)
    return sorted(re.findall(r'^DCGM_FI_DEV_GPU_TEMP{.*UUID="([^"]+)".*} \d+', page, re.MULTILINE))
