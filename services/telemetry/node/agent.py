"""The telemetry agent of a node: samples the GPUs for dashboards and for the fleet's metrics.

It changes nothing on the machine, and holds the driver only while no command forbids it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from libs.bus.agent import AgentSettings
from libs.bus.telemetry import TelemetrySender
from libs.contracts.commands import CommandKind
from libs.contracts.facts import Gpu
from libs.host.gpus.port import GpuHandle
from libs.host.machine import Machine
from libs.host.podresources.assignments import PodsByGpu
from libs.runtime.clock import Clock
from libs.runtime.http import HttpSettings, Page, serve_pages
from libs.runtime.service import Service
from services.agent_frame import Given
from services.health_file import HealthFile
from services.telemetry.exporter import Pages, metrics
from services.telemetry.exposition import HOSTNAME_LABEL, HostnameLabel, NodeSamples, render, rows
from services.telemetry.metric_list import MetricList
from services.telemetry.node.health import HealthReporter
from services.telemetry.node.metric_file import MetricFile
from services.telemetry.node.pods import PodFollower, connected_kubelet
from services.telemetry.node.publisher import SweepPublisher
from services.telemetry.node.sampler import Sampler, Sweep, TelemetryMetrics


class TelemetrySettings(AgentSettings, frozen=True, kw_only=True):
    exporter: HttpSettings = HttpSettings(port=9400)
    """Address of the page for dashboards."""
    hostname_label: HostnameLabel = HOSTNAME_LABEL
    metric_list: str = ""
    """The file with the list of metrics; if empty, dcgm-exporter's default list."""
    sample_interval: Annotated[float, msgspec.Meta(ge=0.1, le=60.0)] = 1.0
    """Seconds between two sweeps."""
    report_interval: Annotated[float, msgspec.Meta(ge=1.0, le=30.0)] = 30.0
    """Seconds between two batches for the fleet's metrics, while nothing changes."""
    pod_resources: str = ""
    """The socket of the kubelet's pod-resources API; if empty, no metric has labels of a pod."""
    virtual_gpus: bool = False
    """Whether each of the containers that share a GPU has samples of its own."""


_INDEX: Final = b'<html><body><a href="/metrics">Metrics of this node\'s GPUs</a></body></html>\n'


async def run(settings: TelemetrySettings, given: Given) -> Pages:
    """Start the agent for one boot of the machine; return the pages for dashboards."""
    host, env, service = given.host, given.env, given.service
    boot = await given.boot(settings)
    hold, own_metrics = GpuHandle(host.gpus), TelemetryMetrics(env.metrics)

    async def judge(sweep: Sweep | None, xids: Mapping[str, tuple[int, ...]]) -> None:
        """Let a sweep be judged; one that read nothing says why."""
        if sweep is None:
            await health.add(None, (), hold.problem, xids)
        else:
            await health.add(sweep.gpus, sweep.samples, None, xids)

    sampler = Sampler(machine=host, hold=hold, clock=env.clock, metrics=own_metrics, on_sweep=judge)
    sender = TelemetrySender(bus=given.bus, env=env, node_uid=boot.node_uid, boot_id=boot.boot_id)
    publisher = SweepPublisher(
        sampler=sampler,
        sender=sender,
        clock=env.clock,
        metrics=own_metrics,
        sample_interval=settings.sample_interval,
        report_interval=settings.report_interval,
    )
    listed = MetricFile(
        settings.metric_list, offload=host.offload, clock=env.clock, metrics=env.metrics
    )
    agent = boot.agent({CommandKind.QUIESCE: publisher.quiesce, CommandKind.IDLE: publisher.idle})
    health = HealthReporter(
        machine=host,
        file=HealthFile.beside_journal(settings.state_dir),
        boot_id=boot.boot_id,
        clock=env.clock,
        report=agent.reporter.report,
    )
    hold.is_quiesced = await agent.open() is CommandKind.QUIESCE
    await health.open()
    await listed.read()
    agent.start(service)
    service.run_forever("metric list", listed.follow())
    service.run_forever("sweeps", publisher.run())
    pods = await _follow_pods(settings.pod_resources, host, clock=env.clock, service=service)
    service.ready_when("gpus", lambda: sampler.problem or None)

    def metrics_page() -> Page:
        sweep = sampler.current
        text = sweep and _render(sweep, settings, listed.current, pods(sweep.gpus))
        return metrics(text or b"")

    return {
        "/": lambda: Page(_INDEX, content_type="text/html; charset=utf-8"),
        "/metrics": metrics_page,
        "/health": lambda: Page(b"OK"),
    }


async def _follow_pods(
    socket: str, machine: Machine, *, clock: Clock, service: Service
) -> Callable[[Sequence[Gpu]], PodsByGpu]:
    """Return a function that returns the pods of GPUs; without a socket there are none."""
    if not socket:
        return lambda _gpus: {}
    offload = machine.offload
    kubelet = await service.enter("kubelet", connected_kubelet(socket, offload))
    follower = PodFollower(kubelet.list, offload=offload, clock=clock)
    service.run_forever("pods", follower.run())
    return follower.pods


def _render(
    sweep: Sweep, settings: TelemetrySettings, listed: MetricList, pods: PodsByGpu
) -> bytes:
    """Return the page of one sweep, with the containers that have its GPUs now."""
    samples = NodeSamples(
        node=settings.node,
        driver_version=sweep.driver_version,
        samples=sweep.samples,
        gpus={gpu.uuid: gpu for gpu in sweep.gpus},
    )
    found = rows(
        [samples],
        listed,
        hostname_label=settings.hostname_label,
        pods=pods,
        virtual_gpus=settings.virtual_gpus,
    )
    return render(listed.metrics, list(found))


async def run_and_export(settings: TelemetrySettings, given: Given) -> None:
    """Start the agent, and serve its pages over HTTP."""
    pages = await run(settings, given)
    await serve_pages(given.service, "exporter", settings.exporter, pages)
