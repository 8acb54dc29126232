"""The device plugin of a node: it offers the GPUs to the kubelet, and changes nothing.

It holds the driver only while no command forbids it. As long as one does, all devices are
unhealthy: the kubelet gives them to no pod.
"""

from collections.abc import Callable

from libs.contracts.admission import BegunOp
from libs.contracts.commands import CommandKind
from libs.host.deviceplugin.host import PluginHost
from libs.host.deviceplugin.port import Offers
from libs.host.gpus.port import GpuHandle
from libs.host.machine import Machine
from libs.host.podresources.assignments import DeviceList
from libs.host.podresources.client import PodResources
from libs.runtime.clock import Clock
from libs.runtime.service import Service
from services.agent_frame import Given
from services.driver.plugin.answers import Answers
from services.driver.plugin.claimed import ClaimedGpus
from services.driver.plugin.current_config import READ_INTERVAL, CurrentConfig
from services.driver.plugin.known_health import known_health
from services.driver.plugin.offering import Kubelet, Offering
from services.driver.plugin.settings import PluginSettings
from services.driver.plugin.sickness import switches
from services.driver.plugin.watch import GpuWatch
from services.health_file import moment


class NoKubelet:
    """Takes no offers."""

    problem = ""

    async def offer(self, offers: Offers) -> None:
        del offers


async def run(
    settings: PluginSettings,
    given: Given,
    *,
    kubelet: Kubelet | None = None,
    answers: Answers | None = None,
    list_uses: Callable[[], DeviceList] | None = None,
) -> None:
    """Start the agent for one boot of the machine.

    `kubelet` is where GPUs are offered, and `list_uses` tells which devices pods have; None: where
    the settings say. `answers` answers the kubelet.
    """
    host, env, service = given.host, given.env, given.service
    boot = await given.boot(settings)
    hold, config = GpuHandle(host.gpus), CurrentConfig(settings, host.offload)
    xids = switches(settings.dp_disable_healthchecks, settings.dp_enable_healthchecks)
    health = known_health(host, settings.state_dir, boot_id=boot.boot_id, xids=xids)
    await host.offload.run(lambda: health.open(moment(env.clock)))
    answers = answers or Answers()
    if kubelet is None:
        kubelet = await _connect(settings, answers, host=host, clock=env.clock, service=service)
    offering = Offering(
        watch=GpuWatch(machine=host, hold=hold, health=health, clock=env.clock),
        config=config,
        kubelet=kubelet,
        answers=answers,
        claimed=ClaimedGpus(list_uses or _uses(settings, host)),
        is_told=lambda: agent.commands.has_read_slot,
    )
    agent = boot.agent({CommandKind.QUIESCE: offering.quiesce, CommandKind.IDLE: offering.idle})
    hold.is_quiesced = await agent.open() is CommandKind.QUIESCE
    await config.choose(_last_chosen(agent.commands.seen.begun))
    agent.start(service)
    service.run_forever("configuration", _follow(config, env.clock))
    service.run_forever("devices", offering.run())
    service.ready_when("devices", lambda: offering.problem or None)


def _uses(settings: PluginSettings, host: Machine) -> Callable[[], DeviceList] | None:
    """Return how the kubelet is asked what pods have; None where there are no sockets of one."""
    has_sockets = host.devices is None and settings.device_plugins and settings.pod_resources
    if not has_sockets:
        return None
    return PodResources(settings.pod_resources, own_namespace=settings.namespace).list


def _last_chosen(begun: BegunOp | None) -> str:
    """Return the configuration that the last `idle` named, as the journal has it."""
    if begun is None or begun.command != CommandKind.IDLE or not begun.steps:
        return ""
    return begun.steps[-1]


async def _follow(config: CurrentConfig, clock: Clock) -> None:
    while True:
        await clock.sleep(READ_INTERVAL)
        await config.read()


async def _connect(
    settings: PluginSettings, answers: Answers, *, host: Machine, clock: Clock, service: Service
) -> Kubelet:
    if host.devices is not None:
        return host.devices
    if not settings.device_plugins:
        return NoKubelet()
    plugin_host = PluginHost(
        settings.device_plugins,
        allocator_for=answers.allocator_for,
        offload=host.offload,
        clock=clock,
    )
    await service.enter("kubelet", plugin_host)
    service.run_forever("registrations", plugin_host.run())
    return plugin_host
