"""Keep the pods that bring driver images to nodes as planned, while this process leads."""

import asyncio
from collections.abc import Callable
from typing import Final

from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.rollout import RolloutStatus
from libs.kube.client import Kube
from libs.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, UnknownKind
from libs.kube.informer import Informer
from libs.kube.resources import PODS
from libs.kube.views import Object, Pod
from libs.policy.render.rendered import IMAGE_LABEL
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.subscriptions import subscribed
from libs.runtime.tasks import wait_up_to
from services.driver.cluster.decide import is_driver_daemon_set
from services.driver.cluster.image_pods import PullPlan, plan_pods
from services.driver.cluster.image_requests import ImageRequests
from services.driver.cluster.resources import Informers, Node, Rollout

_INTERVAL: Final = 15.0
"""Seconds until the next plan if nothing changes."""
_DEBOUNCE: Final = 0.2
"""Seconds in which changes are gathered: a change of a pool is one of each of its nodes."""
_TIMEOUT: Final = 3.0
"""Seconds for a write; the next plan repeats what failed."""
_REMEMBERED: Final = 3600.0
"""Seconds for which it is remembered that the pod of a name was created."""

_log = logger()


class ImagePuller:
    """Runs for one term of leadership."""

    def __init__(
        self,
        *,
        kube: Kube,
        namespace: str,
        informers: Informers,
        requests: ImageRequests,
        why_held: Callable[[], str],
        env: Env,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._informers = informers
        self._requests = requests
        self._why_held = why_held
        self._clock = env.clock
        self._pods = Informer(kube, PODS, env=env, namespace=namespace, labels=IMAGE_LABEL)
        self._changed = asyncio.Event()
        self._tried: dict[str, float] = {}
        """When the pod of a name was last created."""

    async def run(self) -> None:
        """Follow the pods, and create and delete them."""
        self._requests.on_change = self._changed.set
        subscriptions = (
            self._informers.on_change(self._on_change),
            self._pods.cache.on_change(lambda _before, _after: self._changed.set()),
        )
        with subscribed(*subscriptions):
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pods.run(), name="follow image pods")
                    tasks.create_task(self._keep_planned(), name="image pods")
            finally:
                self._requests.on_change = lambda: None

    def _on_change(self, before: Object | None, after: Object | None) -> None:
        """Wake up, unless a Node changed of which nothing is read."""
        if isinstance(before, Node) and isinstance(after, Node):
            old, new = before.metadata, after.metadata
            if (old.uid, old.labels) == (new.uid, new.labels):
                return
        self._changed.set()

    async def _keep_planned(self) -> None:
        while True:
            if not (self._informers.why_not_synced() or self._pods.why_not_synced):
                await self._carry_out(self._plan())
            await wait_up_to(_INTERVAL, self._changed)
            self._changed.clear()
            await self._clock.sleep(_DEBOUNCE)

    def _plan(self) -> PullPlan:
        if self._why_held():
            return PullPlan()
        drivers = [each for each in self._informers.daemon_sets if is_driver_daemon_set(each)]
        return plan_pods(
            self._requests.by_node(),
            node_of=self._informers.nodes.cache.get,
            drivers={
                each.metadata.labels[DRIVER_LABEL]: each
                for each in drivers
                if not each.metadata.deletion_timestamp
            },
            last_good={each.metadata.name: _last_good(each) for each in self._informers.rollouts},
            pods=tuple(self._pods),
            tried=self._tried,
            now=self._clock.now(),
        )

    async def _carry_out(self, plan: PullPlan) -> None:
        for pod in plan.delete:
            await self._delete(pod)
        oldest = self._clock.now() - _REMEMBERED
        self._tried = {name: at for name, at in self._tried.items() if at >= oldest}
        for wanted in plan.create:
            name = wanted["metadata"]["name"]
            self._tried[name] = self._clock.now()
            try:
                created = await self._kube.create(
                    PODS, wanted, namespace=self._namespace, within=_TIMEOUT
                )
            except AlreadyExists:
                continue
            except KubeError as error:
                node = wanted["spec"]["nodeName"]
                _log.warning("image pod not created", node=node, why=str(error))
                continue
            self._pods.cache.record_write(created)

    async def _delete(self, pod: Pod) -> None:
        metadata = pod.metadata
        try:
            await self._kube.delete(
                PODS,
                metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
                grace=0,
                within=_TIMEOUT,
            )
        except UnknownKind:
            raise
        except (NotFound, Conflict):
            return
        except KubeError as error:
            _log.warning("image pod not deleted", pod=metadata.name, why=str(error))


def _last_good(rollout: Rollout) -> str:
    """Return the last-good target of a Rollout; empty while there is none."""
    try:
        return decode(RolloutStatus, rollout.status).last_good if rollout.status_text else ""
    except MalformedMessage:
        return ""
