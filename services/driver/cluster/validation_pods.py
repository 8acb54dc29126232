"""Make the pods that confirm validations, and write to Nodes what became of them.

What is to be done is decided in `validation_pod_steps`. It runs for one term of leadership, whose
fence covers each write; a name is unique for a validation, so a repeated creation changes nothing.
"""

from typing import Final

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.controller import (
    Controller,
    ControllerMetrics,
    Reconciled,
    ReconcileResult,
    RequeueAfter,
)
from libs.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound
from libs.kube.views import Object
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.render.rendered import RenderSettings
from libs.policy.render.validation_pod import render_validation_pod
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.driver.cluster import resources
from services.driver.cluster.planner import Planner
from services.driver.cluster.resources import Informers, ValidatingPod
from services.driver.cluster.validation_pod_steps import (
    CreatePod,
    DeletePod,
    PodStep,
    Tell,
    pod_steps,
    was_not_admitted,
)
from services.driver.cluster.writes import Writes

NAME: Final = "validation-pods"
"""The controller's name in its metrics."""
RETRY: Final = 30.0
"""Seconds after which a pod is made again that was refused, or was not admitted."""

_log = logger()


class ValidationPods:
    """The pods of all nodes, while this process leads."""

    def __init__(
        self,
        *,
        kube: Kube,
        pods: Cache[ValidatingPod],
        informers: Informers,
        planner: Planner,
        settings: RenderSettings,
        writes: Writes,
        controller_metrics: ControllerMetrics,
        env: Env,
    ) -> None:
        self._kube = kube
        self._pods = pods
        self._informers = informers
        self._planner = planner
        self._settings = settings
        self._writes = writes
        self._refused: dict[str, str] = {}
        """Why the API server refused a pod, by name of node."""
        self._next_try: dict[str, float] = {}
        """When the next pod may be made, by name of node."""
        self._clock = env.clock
        self._controller = Controller(
            name=NAME,
            reconcile=self._reconcile,
            concurrency=4,
            timeout=30.0,
            env=env,
            metrics=controller_metrics,
        )
        self._queue = self._controller.queue

    async def run(self) -> None:
        for node in self._informers.nodes:
            self._node_changed(None, node)
        for pod in self._pods:
            self._pod_changed(None, pod)
        await self._controller.run_subscribed(
            self._pods.on_change(self._pod_changed),
            self._informers.nodes.cache.on_change(self._node_changed),
        )

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        for pod in (before, after):
            if isinstance(pod, ValidatingPod):
                self._queue.add(pod.spec.node_name)

    def _node_changed(self, before: Object | None, after: Object | None) -> None:
        nodes = [each for each in (before, after) if isinstance(each, resources.Node)]
        if len({(node.record, node.validation_pod, node.gpu_resource) for node in nodes}) > 1 or (
            len(nodes) == 1 and (nodes[0].record or nodes[0].validation_pod)
        ):
            self._queue.add(nodes[0].metadata.name)

    async def _reconcile(self, name: str) -> ReconcileResult:
        if not self._pods.is_synced or self._informers.nodes.why_not_synced:
            return RequeueAfter(1.0)
        if self._planner.hold_reason:
            return RequeueAfter(RETRY)
        node = self._informers.nodes.cache.get(name)
        pods = [pod for pod in self._pods if pod.spec.node_name == name]
        left = self._next_try.get(name, 0.0) - self._clock.monotonic()
        if any(map(was_not_admitted, pods)):
            left = self._retry_later(name)
        refused = self._refused.get(name, "")
        for step in pod_steps(name, node, pods, refused=refused, is_paused=left > 0):
            await self._carry_out(name, node, step)
        if self._refused.get(name, "") != refused:
            self._queue.add(name)  # to say so on the Node
        return RequeueAfter(left) if left > 0 else Reconciled()

    def _retry_later(self, name: str) -> float:
        """Make no pod for a while; return for how many seconds."""
        self._next_try[name] = self._clock.monotonic() + RETRY
        return RETRY

    async def _carry_out(self, name: str, node: resources.Node | None, step: PodStep) -> None:
        if isinstance(step, DeletePod):
            await self._delete(step)
        elif node is not None and isinstance(step, CreatePod):
            await self._create(name, node, step)
        elif node is not None and isinstance(step, Tell):
            await self._writes.tell_outcome(node, step.outcome)

    async def _create(self, name: str, node: resources.Node, step: CreatePod) -> None:
        cluster = self._planner.plan.pools.cluster
        policy = cluster if isinstance(cluster, ClusterPolicy) else ClusterPolicy()
        pod = render_validation_pod(
            policy,
            self._settings,
            node=name,
            node_uid=node.metadata.uid,
            order=step.order,
            resource=step.resource,
        )
        try:
            view = await self._kube.create(
                resources.VALIDATION_PODS, pod, namespace=self._settings.namespace
            )
        except AlreadyExists:
            return  # the cache will show it
        except (Forbidden, Invalid) as error:
            self._refused[name] = f"the API server refused the pod: {error}"
            self._retry_later(name)
            _log.warning("a pod that confirms a validation was refused", node=name, why=str(error))
            return
        self._refused.pop(name, None)
        self._pods.record_write(view)

    async def _delete(self, step: DeletePod) -> None:
        try:
            await self._kube.delete(
                resources.VALIDATION_PODS,
                step.name,
                uid=step.uid,
                namespace=self._settings.namespace,
                grace=0,
            )
        except NotFound:
            return
