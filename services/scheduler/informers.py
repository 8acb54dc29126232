"""The informers of the scheduler, and how current each source of the snapshot is."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from libs.contracts.node import DRIVER_LABEL
from libs.kube.client import Kube
from libs.kube.informer import Informer, informers
from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import LEASES
from libs.policy.render.agents import AGENTS
from libs.rollout.views.fleet import SourceState
from libs.runtime.env import Env
from services.scheduler import resources

if TYPE_CHECKING:
    from collections.abc import Mapping

_AGENTS: Final = ",".join(sorted(agent.app for agent in AGENTS))


def by_node(pod: resources.Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class Informers:
    def __init__(self, kube: Kube, *, namespace: str, env: Env) -> None:
        cluster_wide: Any = {"env": env}
        namespaced: Any = {"env": env, "namespace": namespace}
        self._clock = env.clock
        self.nodes = Informer(kube, resources.NODES, **cluster_wide)
        self.rollouts = Informer(kube, resources.ROLLOUTS, **cluster_wide)
        self.policies = informers(resources.POLICIES, kube, env=env)
        self.gpu_clusters = Informer(kube, resources.GPU_CLUSTERS, **cluster_wide)
        self.daemon_sets = Informer(kube, resources.DAEMON_SETS, labels=DRIVER_LABEL, **namespaced)
        self.driver_pods = Informer(
            kube, resources.PODS, labels=DRIVER_LABEL, indexes={"node": by_node}, **namespaced
        )
        self.other_pods = Informer(
            kube,
            resources.PODS,
            labels=f"!{DRIVER_LABEL},app notin ({_AGENTS})",
            indexes={"node": by_node},
            **namespaced,
        )
        """Pods in the namespace that are neither drivers nor agents: NATS, the cluster roles."""
        self.leases = Informer(
            kube, LEASES, fields=f"metadata.name={GPU_OPERATOR_LEASE}", **cluster_wide
        )
        self._sources: Mapping[str, tuple[Informer[Any], ...]] = {
            "nodes": (self.nodes,),
            "pods": (self.driver_pods,),
            "rollouts": (self.rollouts,),
            "policies": (*self.policies.values(), self.gpu_clusters),
            "daemonsets": (self.daemon_sets,),
        }
        self._probed: dict[str, float] = {}

    def all(self) -> tuple[Informer[Any], ...]:
        sources = (informer for source in self._sources.values() for informer in source)
        return (*sources, self.other_pods, self.leases)

    def why_not_synced(self) -> str:
        """Return why objects are not known yet; empty: all informers are synced."""
        return "; ".join(why for informer in self.all() if (why := informer.why_unknown))

    def source_states(self) -> dict[str, SourceState]:
        """Return how current each source is."""
        now = self._clock.now()
        return {
            name: SourceState(
                proved=now - max(informer.age for informer in source),
                revision=str(max(informer.cache.revision for informer in source)),
                probed=self._probed.get(name),
            )
            for name, source in self._sources.items()
        }

    async def verify_source(self, name: str) -> None:
        """Verify that a source is current; `source_states` has the outcome."""
        self._probed[name] = self._clock.now()
        async with asyncio.TaskGroup() as probes:
            for informer in self._sources[name]:
                probes.create_task(informer.verify_current())
