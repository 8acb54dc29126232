"""Everything that the scheduler follows on the API server. What is made of it is not known here."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from libs.contracts.node import DRIVER_LABEL
from libs.kube import gpu_operator
from libs.kube.client import Kube
from libs.kube.custom_resources import informers
from libs.kube.informer import Informer
from libs.kube.resources import LEASES
from libs.policy.render.agents import AGENTS
from libs.rollout.views.fleet import SourceState as Seen
from libs.runtime.env import Env
from services.scheduler import resources

if TYPE_CHECKING:
    from collections.abc import Mapping

_AGENTS: Final = ",".join(sorted(agent.app for agent in AGENTS))


def by_node(pod: resources.Pod) -> tuple[str, ...]:
    """On which node it is."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class Informers:
    """All of them, and how sure we are of each part of the views."""

    def __init__(self, kube: Kube, *, namespace: str, env: Env) -> None:
        given: Any = {"env": env}
        at_home: Any = {**given, "namespace": namespace}
        self._clock = env.clock
        self.nodes = Informer(kube, resources.NODES, **given)
        self.rollouts = Informer(kube, resources.ROLLOUTS, **given)
        self.policies = informers(resources.POLICIES, kube, env=env)
        self.gpu_clusters = Informer(kube, resources.GPU_CLUSTERS, **given)
        self.daemon_sets = Informer(kube, resources.DAEMON_SETS, labels=DRIVER_LABEL, **at_home)
        self.driver_pods = Informer(
            kube, resources.PODS, labels=DRIVER_LABEL, indexes={"node": by_node}, **at_home
        )
        others = f"!{DRIVER_LABEL},app notin ({_AGENTS})"
        self.other_pods = Informer(
            kube, resources.PODS, labels=others, indexes={"node": by_node}, **at_home
        )
        """NATS and our cluster roles, as far as they live beside the operands."""
        self.leases = Informer(kube, LEASES, fields=f"metadata.name={gpu_operator.LEASE}", **given)
        self._parts: Mapping[str, tuple[Informer[Any], ...]] = {
            "nodes": (self.nodes,),
            "pods": (self.driver_pods,),
            "rollouts": (self.rollouts,),
            "policies": (*self.policies.values(), self.gpu_clusters),
            "daemonsets": (self.daemon_sets,),
        }
        self._probed: dict[str, float] = {}

    def all(self) -> tuple[Informer[Any], ...]:
        """Each once."""
        parts = (source for part in self._parts.values() for source in part)
        return (*parts, self.other_pods, self.leases)

    def why_not_synced(self) -> str:
        """Why it is not known yet what there is, in words; empty: it is."""
        return "; ".join(why for source in self.all() if (why := source.why_unknown))

    def source_states(self) -> dict[str, Seen]:
        """How sure we are of each part, as the engine asks for it."""
        now = self._clock.now()
        return {
            name: Seen(
                proved=now - max(source.age for source in sources),
                revision=str(max(source.cache.revision for source in sources)),
                probed=self._probed.get(name),
            )
            for name, sources in self._parts.items()
        }

    async def verify_part(self, part: str) -> None:
        """Have this part show that it is current; whether it did, its age tells."""
        self._probed[part] = self._clock.now()
        async with asyncio.TaskGroup() as asking:
            for source in self._parts[part]:
                asking.create_task(source.verify_current())
