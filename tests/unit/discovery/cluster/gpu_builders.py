"""GPUs, verdicts and cached Devices for tests of what is written about them."""

from typing import Any

import msgspec

from libs.contracts.facts import Facts, Gpu, Mig
from libs.contracts.health import GpuHealth, Health, HealthFinding, HealthRule, HealthState
from libs.kube.views import Condition
from services.discovery.cluster.device_decide import (
    ApplyDevice,
    ChangeHealth,
    DeviceDecision,
    absent_keys,
    decide_devices,
    owner_of,
)
from services.discovery.cluster.devices import Device, FullDevice, wanted_from
from services.discovery.cluster.reported_gpus import read_gpus
from services.discovery.cluster.resources import Node
from tests.builders import gpus, objects
from tests.builders.objects import seen
from tests.unit.discovery.cluster.builders import DEVICE

NOW = 1_800_000_000.0
UUIDS = [f"GPU-{number:08}-0000-0000-0000-000000000000" for number in range(8)]
XID = HealthFinding(
    rule=HealthRule.XID,
    state=HealthState.FAILED,
    message="the GPU fell off the bus (XID 79)",
    remedy="reboot the node",
    since=NOW - 60,
    xid=79,
)


def gpu(index: int, /, **changed: Any) -> Gpu:
    """Return an H100."""
    fields: dict[str, Any] = {
        "uuid": UUIDS[index],
        "pci": f"0000:0{index}:00.0",
        "compute_capability": (9, 0),
        "mig_capable": True,
        "mig_pending": False,
        "serial": f"165022{index}",
        "nvlinks": 18,
    }
    return gpus.gpu(index, **(fields | changed))


def facts(*gpus: Gpu) -> Facts:
    return Facts(pci=(DEVICE,), gpus=gpus)


def judged(index: int, /, *findings: HealthFinding, **changed: Any) -> GpuHealth:
    state = findings[0].state if findings else HealthState.OK
    fields: dict[str, Any] = {"uuid": UUIDS[index], "index": index, "state": state}
    fields["findings"] = findings
    return GpuHealth(**(fields | changed))


def health(*gpus: GpuHealth) -> Health:
    return Health(gpus=gpus)


MIG = Mig(uuid="MIG-1", profile="1g.10gb", gpu_instance=7, memory_mib=9984)


def node(condition: Condition | None = None, *, name: str = "a", uid: str = "u") -> Node:
    """Return a Node with this condition of ours and one of a kubelet's."""
    whole = objects.node(name, ready=True, boot="boot-1", uid=uid, resourceVersion="7")
    if condition is not None:
        whole["status"]["conditions"].append(msgspec.to_builtins(condition))
    return seen(Node, whole)


class Site:
    """One Node and its Devices as a server stores them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.stored: dict[str, dict[str, Any]] = {}
        self.decisions: list[DeviceDecision] = []

    @property
    def present(self) -> list[Device]:
        return [msgspec.convert(each, Device) for each in self.stored.values()]

    def decide(
        self,
        facts: Facts | None,
        health: Health | None = None,
        *,
        driver: str | None = "580.95.05",
        absent: float = 0.0,
        now: float = NOW,
        is_silent: bool | None = False,
    ) -> DeviceDecision:
        """Decide, where everything that is missing has been so for `absent` seconds."""
        reported = read_gpus(facts, driver, health, now=now, is_silent=is_silent)
        keys = dict.fromkeys(absent_keys(self.node, self.present, reported), absent)
        return decide_devices(self.node, self.present, reported, keys, now=now)

    def settle(self, *arguments: Any, **options: Any) -> DeviceDecision:
        """Decide and write; the same reports must then change nothing."""
        decision = self.decide(*arguments, **options)
        self.write(decision)
        assert self.decide(*arguments, **options).is_empty
        return decision

    def write(self, decision: DeviceDecision) -> None:
        for write in decision.writes:
            if isinstance(write, ApplyDevice):
                self._store(write.wanted.manifest())
            elif isinstance(write, ChangeHealth):
                full = msgspec.convert(self.stored[write.name], FullDevice)
                wanted = wanted_from(full, write.health, owner=owner_of(self.node))
                self._store(wanted.manifest())
            else:
                assert self.stored.pop(write.name)["metadata"]["uid"] == write.uid
        if decision.condition is not None:
            self.node = node(
                decision.condition.condition,
                name=self.node.metadata.name,
                uid=self.node.metadata.uid,
            )

    def _store(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        manifest["metadata"] |= {"uid": f"uid of {name}", "resourceVersion": "9"}
        self.stored[name] = msgspec.json.decode(msgspec.json.encode(manifest))
