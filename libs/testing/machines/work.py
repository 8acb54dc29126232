"""Containers that were given GPUs: they hold the devices for as long as they run."""

from libs.forecast.world import Ending
from libs.testing.cluster.kinds import Pod
from libs.testing.cluster.kubelet.hardware import GPU
from libs.testing.cluster.kubelet.occupants import Instance
from libs.testing.machines.kernel import CONTROL, MEMORY, device
from libs.testing.machines.residents import Resident, workload
from libs.testing.machines.site import Site


class Work(Resident):
    """Computes on GPUs that nobody else computes on, and fails at once where it gets none."""

    comm = "python3"

    def __init__(self, site: Site, count: int, *, init: bool) -> None:
        super().__init__(site)
        self._count = count
        self._init = init

    async def live(self, instance: Instance) -> int:
        """As long as the world lets it."""
        site = self.site
        taken = site.kernel.computing()
        free = [number for number in range(len(site.gpus)) if number not in taken]
        mine = [device(number) for number in free[: self._count]]
        if len(mine) < self._count or not site.kernel.open(self.pid, (CONTROL, MEMORY, *mine)):
            return 1
        who = (instance.node, workload(instance.pod), instance.container, instance.attempt)
        ending = self._ending(instance.pod, who)
        ready = site.model.ready(*who).seconds
        if not self._init and ready is not None and (ending.after is None or ready < ending.after):
            await self.wait(ready)
            self.ready(True)
            await self.wait(None if ending.after is None else ending.after - ready)
        else:
            await self.wait(ending.after)
        return ending.exit_code

    def _ending(self, pod: Pod, who: tuple[str, str, str, int]) -> Ending:
        model = self.site.model
        if self._init:
            return model.init(*who)
        return model.run(*who) if pod.spec.restart_policy == "Always" else model.job(*who)


def resident(site: Site, pod: Pod, container: str) -> Work | None:
    """Who lives in this container, if it was given GPUs."""
    for init, group in ((True, pod.spec.init_containers), (False, pod.spec.containers)):
        for each in group:
            if each.name == container:
                count = int(each.resources.limits.get(GPU, "0"))
                return Work(site, count, init=init) if count else None
    return None
