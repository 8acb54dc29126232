"""Resident memory of discovery's caches and decisions, with 5,000 nodes of 8 GPUs."""

import asyncio
import gc
import json
import subprocess
import sys
from typing import Any, Final

import msgspec

from bench.report import BenchReport
from bench.resident import resident
from libs.bus.port import StoredMessage
from libs.bus.reports import ReportCache
from libs.contracts import subjects
from libs.contracts.facts import Facts, Gpu, LoadedDriver, OperatingSystem, PciDevice
from libs.contracts.health import GpuHealth, Health
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Report, StateBody
from libs.kube.indexed_store import IndexedStore
from libs.kube.queue import WorkQueue
from libs.runtime.clock import SystemClock
from libs.testing.bus import LocalServer
from libs.testing.cluster.kubelet.hardware import KERNEL, Hardware, node
from libs.testing.simulation import make_env
from services.discovery.cluster.absences import Absences
from services.discovery.cluster.decide import LabelPolicy, decide
from services.discovery.cluster.device_decide import ApplyDevice, absent_keys, decide_devices
from services.discovery.cluster.devices import BY_NODE, Device
from services.discovery.cluster.pace import Pace
from services.discovery.cluster.reports import ReportReader, read_devices
from services.discovery.cluster.resources import Node

TITLE = "discovery's cluster role with 5,000 nodes of 8 GPUs"
NODES: Final = 5_000
GPUS: Final = 8
NOW: Final = 1_800_000_000.0


async def run(report: BenchReport) -> None:
    """Measure a process of its own."""
    child = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "bench.devices"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found: dict[str, float] = json.loads(child.stdout)
    report.figure("reports, in the cache", found["reports"] - found["imported"], "MiB")
    report.figure("40,000 Devices and the Nodes, in the cache", found["objects"], "MiB")
    report.at_most("all decisions, beyond the caches", found["decided"], 128, "MiB")
    total = found["reports"] - found["imported"] + found["objects"] + found["decided"]
    report.figure("everything, above only imported", total, "MiB")
    report.figure("a decision on a node where nothing changed", found["microseconds"], "us")


class Fleet:
    """The caches of the role, filled."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        server = LocalServer(env=make_env(clock=self.clock))
        bus = server.connect(Identity(writer=Writer.DISCOVERY_CLUSTER))
        self.reports = ReportCache(bus=bus, clock=self.clock, cluster="default")
        self.nodes = IndexedStore[Node]({})
        self.devices = IndexedStore[Device]({BY_NODE: lambda device: (device.node,)})
        self.reader = ReportReader(self.reports, clock=self.clock)
        self.absences = Absences(self.reports, clock=self.clock)
        self.pace = Pace(clock=self.clock)
        self.queue = WorkQueue[str](clock=self.clock)

    def add_reports(self) -> None:
        self.reports.began(False)
        for number in range(NODES):
            self._report(number, _facts(number), Writer.DISCOVERY, "facts")
            driver = Facts(driver=LoadedDriver(version="580.95.05", cuda="13.0"))
            self._report(number, driver, Writer.DRIVER, "facts")
            self._report(number, _health(number), Writer.TELEMETRY, "health")
        self.reports.caught_up()

    def _report(self, number: int, body: StateBody, writer: Writer, kind: str) -> None:
        name = f"gpu-{number:05}"
        report = Report.of(
            body,
            node=name,
            node_uid=f"uid-{number}",
            boot_id=f"boot-{number}",
            component=writer,
            at=NOW,
        )
        subject = subjects.State(cluster="default", node=name, component=writer, kind=kind)
        self.reports.received(StoredMessage(str(subject), number + 1, NOW, encode(report)))

    def add_nodes(self) -> None:
        hardware = Hardware(full=True)
        for number in range(NODES):
            boot = f"boot-{number}"
            name = f"gpu-{number:05}"
            body = node(name, hardware, ip="10.0.0.1", boot_id=boot, kernel=KERNEL, now=NOW)
            body["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": f"{number + 1}"}
            self.nodes.put(msgspec.json.decode(msgspec.json.encode(body), type=Node))

    def decide(self, *, write: bool) -> int:
        """Decide on each node; return the number of Devices to write, which `write` stores."""
        policy, count = LabelPolicy(), 0
        for each in self.nodes:
            name = each.metadata.name
            self.queue.add(name)
            decide(each, self.reader.read(each), policy)
            reported = read_devices(self.reports, each, now=NOW)
            present = self.devices.by_index(BY_NODE, name)
            absent = self.absences.update(each, absent_keys(each, present, reported))
            decision = decide_devices(each, present, reported, absent, now=NOW)
            devices = [item.wanted for item in decision.writes if isinstance(item, ApplyDevice)]
            count += len(devices)
            if not write:
                self.pace.take(name)
                continue
            for wanted in devices:
                stored: dict[str, Any] = wanted.manifest()
                stored["metadata"] |= {"uid": f"uid-of-{wanted.name}", "resourceVersion": "1234567"}
                self.devices.put(msgspec.json.decode(msgspec.json.encode(stored), type=Device))
        return count


def _facts(number: int) -> Facts:
    gpus = tuple(
        Gpu(
            uuid=_uuid(number, index),
            index=index,
            minor=index,
            pci=f"0000:{index:02x}:00.0",
            name="NVIDIA H100 80GB HBM3",
            memory_mib=81559,
            compute_capability=(9, 0),
            mig_capable=True,
            mig_pending=False,
            serial=f"165{number:05}{index}",
            nvlinks=18,
        )
        for index in range(GPUS)
    )
    pci = tuple(
        PciDevice(address=gpu.pci, vendor="10de", device="2330", device_class="0302")
        for gpu in gpus
    )
    return Facts(pci=pci, gpus=gpus, os=OperatingSystem(id="ubuntu", version_id="22.04"))


def _health(number: int) -> Health:
    return Health(
        gpus=tuple(GpuHealth(uuid=_uuid(number, index), index=index) for index in range(GPUS))
    )


def _uuid(number: int, index: int) -> str:
    return f"GPU-{number:08}-{index:04}-0000-0000-000000000000"


async def _measure() -> None:
    fleet = Fleet()
    imported = _resident()
    fleet.add_reports()
    reports = _resident()
    fleet.add_nodes()
    assert fleet.decide(write=True) == NODES * GPUS
    cached = _resident()
    began = fleet.clock.monotonic()
    assert fleet.decide(write=False) == 0
    seconds = fleet.clock.monotonic() - began
    # Garbage counts too: the figure is the process after the decisions.
    print(
        json.dumps(
            {
                "imported": imported,
                "reports": reports,
                "objects": cached - reports,
                "decided": resident() - cached,
                "microseconds": seconds / NODES * 1e6,
            }
        )
    )


def _resident() -> float:
    gc.collect()
    return resident()


if __name__ == "__main__":
    asyncio.run(_measure())
