"""A scheduler with a planted fault: evidence of an earlier boot counts too."""

import runpy

from msgspec.structs import replace

from libs.contracts.node import NodeRecord
from libs.policy.wanted import InstallMethod
from libs.rollout import node_driver
from libs.rollout.views.node import NodeView

_is_in_place = node_driver.is_in_place


def is_in_place(node: NodeView, record: NodeRecord, label: str, method: InstallMethod) -> bool:
    """Judge the evidence as if it were of this boot."""
    if record.evidence is not None:
        record = replace(record, evidence=replace(record.evidence, boot_id=node.boot_id))
    return _is_in_place(node, record, label, method)


if __name__ == "__main__":
    node_driver.is_in_place = is_in_place
    runpy.run_module("services.scheduler", run_name="__main__", alter_sys=True)
