"""One machine and its kubelet: what it is, whether it speaks, and the pods that live on it.

It decides nothing about time: a fleet wakes it, and carries what it says to the server.
"""

from collections.abc import Callable, Iterator

from libs.forecast.world import WorldModel
from libs.kube.client import Kube
from libs.runtime.env import Env
from libs.runtime.ids import Ids
from libs.testing.cluster.kubelet.container_process import ProcessFactory
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.kubelet.pod_lifecycle import PodHost, PodLifecycle
from libs.testing.cluster.views import Pod

OnChange = Callable[["SimulatedKubelet", str], None]
"""Who is told that something is to be done: `node`, `lease`, or the uid of a pod."""


class SimulatedKubelet:
    """What a test holds in its hands of a machine."""

    def __init__(
        self,
        name: str,
        hardware: Hardware,
        *,
        number: int,
        addresses: Iterator[str],
        kube: Kube,
        model: WorldModel,
        processes: ProcessFactory,
        env: Env,
        on_change: OnChange,
        list_pods: Callable[[str], list[Pod]],
    ) -> None:
        self.name = name
        self.hardware = hardware
        self.kernel = hardware.kernel
        self.kube = kube
        self.ip = f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}"
        self.node_uid = ""
        self.lease_version = ""
        self.is_connected = True
        """Whether the server hears it."""
        self.is_on = True
        """Whether the machine is on."""
        self.pods: dict[str, PodLifecycle] = {}
        self._offered: dict[str, int] = {}
        self._boots = 0
        self._clock = env.clock
        self._ids = env.ids
        self._stirred = on_change
        self._present = list_pods
        self._machine = PodHost(
            node=name,
            ip=self.ip,
            addresses=addresses,
            boot_id=_boot_id(env.ids),
            model=model,
            clock=env.clock,
            ids=env.ids,
            processes=processes,
        )

    @property
    def boot_id(self) -> str:
        """Of the present boot."""
        return self._machine.boot_id

    @property
    def devices(self) -> dict[str, int]:
        """What device plugins have said is there, by resource; zero: a plugin was there."""
        return dict(self._offered)

    # What happens to the machine.

    def disconnect(self) -> None:
        """Nothing goes in or out any more; what runs on it goes on."""
        self.is_connected = False

    def reconnect(self) -> None:
        """It is heard again, and catches up; a machine that is off stays silent."""
        if self.is_connected or not self.is_on:
            return
        self.is_connected = True
        self._stirred(self, "node")
        self._stirred(self, "lease")
        present = {pod.metadata.uid: pod for pod in self._present(self.name)}
        for uid in [uid for uid in self.pods if uid not in present]:
            self.pod_deleted(uid)
        for pod in present.values():
            self.pod_updated(pod)

    def power_off(self) -> None:
        """Everything on it ends, and nobody hears of it."""
        self.disconnect()
        self.is_on = False
        for life in self.pods.values():
            life.kill(self._clock.now())

    def power_on(self, *, kernel: str = "") -> None:
        """It boots, perhaps another kernel; plugins must offer their devices anew."""
        if self.is_on:
            return
        self.is_on = True
        self.kernel = kernel or self.kernel
        self._machine.boot_id = _boot_id(self._ids)
        self._offered = dict.fromkeys(self._offered, 0)
        for life in self.pods.values():
            life.restart(self._clock.now())
        self.reconnect()

    async def reboot(self, *, kernel: str = "") -> bool:
        """Off, and on again when it has booted; False where the model lets it never come back."""
        self.power_off()
        span = self._machine.model.boot(self.name, self._boots)
        self._boots += 1
        if span.seconds is None:
            return False
        await self._clock.sleep(span.seconds)
        self.power_on(kernel=kernel)
        return True

    def register(self) -> None:
        """It starts anew and writes its Node, as after somebody has deleted that."""
        self.node_uid = ""
        self._stirred(self, "node")

    def set_devices(self, resource: str, count: int) -> None:
        """A device plugin says how many devices can be given out now."""
        if self._offered.get(resource) != count:
            self._offered[resource] = count
            self._stirred(self, "node")

    # What it hears of pods.

    def pod_updated(self, pod: Pod) -> None:
        """The server's word on a pod of this machine."""
        if not self.is_connected:
            return
        uid = pod.metadata.uid
        life = self.pods.get(uid)
        if life is None:
            if pod.over and not pod.deleting:
                return
            life = self.pods[uid] = PodLifecycle(
                pod,
                machine=self._machine,
                now=self._clock.now(),
                on_change=lambda: self._stirred(self, uid),
            )
        life.pod_updated(pod)
        if pod.deleting:
            grace = pod.metadata.deletion_grace_period_seconds or 0
            life.stop(self._clock.now(), grace=float(grace))
        self._stirred(self, uid)

    def pod_deleted(self, uid: str) -> None:
        """The server has no such pod any more: what runs of it is killed."""
        if self.is_connected and (life := self.pods.pop(uid, None)) is not None:
            life.kill(self._clock.now())


def _boot_id(ids: Ids) -> str:
    text = ids.new()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
