"""One machine and its kubelet: state, connection and pods.

Time and requests belong to the fleet.
"""

from collections.abc import Callable, Iterator, Mapping

from libs.kube.client import Kube
from libs.runtime.env import Env, Ids
from libs.testing.cluster.kubelet.container import ProcessFactory
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.kubelet.pod_lifecycle import PodHost, PodLifecycle
from libs.testing.cluster.views import Pod
from libs.testing.stage.worlds import MachineModel

DeviceCounts = tuple[Mapping[str, int], Mapping[str, int]]
"""The devices of each resource, and those of them that pods can have."""

OnChange = Callable[["SimulatedKubelet", str], None]
"""Called with the kubelet and the key to reconcile: `node`, `lease`, or the uid of a pod."""


class SimulatedKubelet:
    def __init__(
        self,
        name: str,
        hardware: Hardware,
        *,
        number: int,
        addresses: Iterator[str],
        kube: Kube,
        model: MachineModel,
        processes: ProcessFactory,
        env: Env,
        on_change: OnChange,
        list_pods: Callable[[str], list[Pod]],
        back_off: float = 1.0,
    ) -> None:
        self.name = name
        self.hardware = hardware
        self.kernel = hardware.kernel
        self.kube = kube
        self.ip = f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}"
        self.node_uid = ""
        self.lease_version = ""
        self.is_connected = True
        self.is_on = True
        self.pods: dict[str, PodLifecycle] = {}
        self.device_counts: Callable[[], DeviceCounts | None] = lambda: None
        """Returns what device plugins offer; None: the hardware's GPUs are there all the time."""
        self._boots = 0
        self._clock = env.clock
        self._ids = env.ids
        self._on_change = on_change
        self._list_pods = list_pods
        self._host = PodHost(
            node=name,
            ip=self.ip,
            addresses=addresses,
            boot_id=new_boot_id(env.ids),
            model=model,
            clock=env.clock,
            ids=env.ids,
            processes=processes,
            back_off=back_off,
        )

    @property
    def boot_id(self) -> str:
        return self._host.boot_id

    def disconnect(self) -> None:
        """Cut the network; the machine keeps running."""
        self.is_connected = False

    def reconnect(self) -> None:
        """Connect to the server again and catch up; no effect while the machine is off."""
        if self.is_connected or not self.is_on:
            return
        self.is_connected = True
        self._on_change(self, "node")
        self._on_change(self, "lease")
        present = {pod.metadata.uid: pod for pod in self._list_pods(self.name)}
        for uid in [uid for uid in self.pods if uid not in present]:
            self.pod_deleted(uid)
        for pod in present.values():
            self.pod_updated(pod)

    def power_off(self) -> None:
        """End everything on the machine, without reporting it."""
        self.disconnect()
        self.is_on = False
        for lifecycle in self.pods.values():
            lifecycle.kill(self._clock.now())

    def power_on(self, *, kernel: str = "") -> None:
        """Boot, possibly another kernel from now on."""
        if self.is_on:
            return
        self.is_on = True
        self.kernel = kernel or self.kernel
        self._host.boot_id = new_boot_id(self._ids)
        for lifecycle in self.pods.values():
            lifecycle.restart(self._clock.now())
        self.reconnect()

    async def reboot(self, *, kernel: str = "") -> bool:
        """Power off, and on again after the boot; return False if the boot never ends."""
        self.power_off()
        span = self._host.model.boot(self.name, self._boots)
        self._boots += 1
        if span.seconds is None:
            return False
        await self._clock.sleep(span.seconds)
        self.power_on(kernel=kernel)
        return True

    def report_node(self) -> None:
        """Write the status of the Node soon."""
        self._on_change(self, "node")

    def register(self) -> None:
        """Create the Node again, like a kubelet restarted after its Node was deleted."""
        self.node_uid = ""
        self._on_change(self, "node")

    def pod_updated(self, pod: Pod) -> None:
        """Handle a new or changed pod of this machine."""
        if not self.is_connected:
            return
        uid = pod.metadata.uid
        lifecycle = self.pods.get(uid)
        if lifecycle is None:
            if pod.over and not pod.deleting:
                return
            lifecycle = self.pods[uid] = PodLifecycle(
                pod,
                host=self._host,
                now=self._clock.now(),
                on_change=lambda: self._on_change(self, uid),
            )
        lifecycle.pod_updated(pod)
        if pod.deleting:
            grace = pod.metadata.deletion_grace_period_seconds or 0
            lifecycle.stop(self._clock.now(), grace=float(grace))
        self._on_change(self, uid)

    def pod_deleted(self, uid: str) -> None:
        """Kill the containers of a pod that the server no longer has."""
        if self.is_connected and (lifecycle := self.pods.pop(uid, None)) is not None:
            lifecycle.kill(self._clock.now())


def new_boot_id(ids: Ids) -> str:
    """Return a new id in the form of a UUID."""
    text = ids.new()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
