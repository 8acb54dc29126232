"""A pod that asks for a GPU confirms a validation, where the policy says so."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from libs.contracts.identities import Writer
from libs.contracts.node import VALIDATION_POD_ANNOTATION
from libs.kube.resources import PODS
from libs.policy.render.validation_pod import APP
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.cluster.kubelet.container import (
    ContainerInstance,
    ContainerProcess,
    ProcessEvents,
)
from libs.testing.cluster.views import Pod
from services.scheduler import resources
from tests.component import world as worlds
from tests.component.processes import NAMESPACE, Process, user_of
from tests.component.scheduler.world import FAST, POLICY, World
from tests.support import played_by

CHAIN = ["driver", "gpus", "cuda", "plugin"]


class Computation:
    """The process of a validating pod: it ends at once, or never."""

    def __init__(self, code: int | None) -> None:
        self._code = code

    def begin(self, _instance: ContainerInstance, events: ProcessEvents, /) -> None:
        if self._code is not None:
            events.exit(self._code)

    def stop(self, instance: ContainerInstance) -> None:
        pass

    def end(self, instance: ContainerInstance) -> None:
        pass


class PodWorld(World):
    exit_code: int | None = 0
    """How the next pods end; None: they run on."""

    def _process_for(self, pod: Pod, container: str) -> ContainerProcess | None:
        if pod.metadata.labels.get("app") == APP:
            return Computation(self.exit_code)
        return super()._process_for(pod, container)

    async def begin(self, *, exit_code: int | None = 0) -> None:
        """Begin the first rollout to node a, under a policy that asks for the pod."""
        self.exit_code = exit_code
        await self.install_fleet("a")
        variables = [{"name": "WITH_WORKLOAD", "value": "true"}]
        spec = {"validator": {"plugin": {"env": variables}}}
        await self.patch(resources.POLICIES["ClusterPolicy"], POLICY, {"spec": spec})
        self.start(Writer.DRIVER_CLUSTER)
        self.start()

    async def pods(self) -> list[str]:
        page = await self.kube.list_page(PODS, namespace=NAMESPACE, labels=f"app={APP}")
        return [pod.metadata.name for pod in page.items]

    def created(self) -> list[str]:
        """Return the names of the pods that were made, in order."""
        return [
            each.name
            for each in self.server.journal.revisions
            if each.name.startswith("sluice-validation-")
            and (each.verb, each.code) == ("create", 201)
        ]

    async def steps(self) -> list[tuple[str, bool]]:
        return [(step.name, step.passed) for step in (await self.evidence("a")).steps]

    async def until_wait(self, text: str) -> None:
        async def waits() -> bool:
            wait = (await self.why("a")).wait
            return wait is not None and text in wait.detail

        await self.until(waits)


def play(story: Callable[[PodWorld], Coroutine[Any, Any, None]]) -> None:
    worlds.run_world(story, lambda sim, folder: PodWorld(sim, folder, FAST), seed=1)


in_pod_world = played_by(play)


def failures(validator: Process) -> list[str]:
    lines = validator.metrics.render().decode().splitlines()
    return [line for line in lines if line.startswith("sluice_validator_node_failed{")]


@in_pod_world
async def test_a_node_is_released_once_the_pod_has_computed(world: PodWorld) -> None:
    await world.begin()
    await world.wait_until_done("a")
    assert await world.steps() == [(name, True) for name in (*CHAIN, "workload")]
    assert len(world.created()) == 1
    await world.sleep(5)
    assert await world.pods() == []
    assert VALIDATION_POD_ANNOTATION not in (await world.node("a")).metadata.annotations


@in_pod_world
async def test_a_pod_that_fails_fails_the_node(world: PodWorld) -> None:
    validator = world.start(Writer.VALIDATOR_CLUSTER)
    await world.begin(exit_code=1)
    await world.until_state("a", "upgrade-failed")
    await world.sleep(5)
    wait = await world.wait_of("a")
    assert "validation: workload: its container failed" in wait.detail
    (line,) = failures(validator)
    assert 'step="workload"' in line
    assert len(world.created()) == 1
    assert await world.pods() == []


@pytest.mark.parametrize("code", [403, 422])
@in_pod_world
async def test_a_refused_pod_is_named_and_made_again(world: PodWorld, code: int) -> None:
    world.server.faults.add(
        Fault(
            effect=RefuseRequest(code),
            verbs=("create",),
            kind="Pod",
            user=user_of(Writer.DRIVER_CLUSTER),
        )
    )
    await world.begin()
    await world.until_wait("the API server refused the pod")
    assert await world.pods() == []
    assert await world.state("a") == "validation-required"
    world.server.faults.clear()
    await world.wait_until_done("a")
    assert await world.steps() == [(name, True) for name in (*CHAIN, "workload")]


@in_pod_world
async def test_a_pod_that_is_deleted_is_made_again(world: PodWorld) -> None:
    await world.begin(exit_code=None)
    await world.until_wait("waiting for the pod that asks for a GPU")
    await world.sleep(20)
    assert await world.state("a") == "validation-required"
    (name,) = await world.pods()
    world.exit_code = 0
    pod = await world.kube.get(PODS, name, namespace=NAMESPACE)
    await world.kube.delete(PODS, name, uid=pod.metadata.uid, namespace=NAMESPACE, grace=0)
    await world.wait_until_done("a")
    assert world.created() == [name, name]


@in_pod_world
async def test_a_pod_that_never_ends_fails_the_node_at_its_deadline(world: PodWorld) -> None:
    await world.begin(exit_code=None)
    await world.until_state("a", "upgrade-failed", within=1200)
    assert (await world.record("a")).cause == "validation: workload: no pod computed in time"
    await world.sleep(5)
    assert await world.pods() == []


@in_pod_world
async def test_without_the_variable_no_pod_is_made(world: PodWorld) -> None:
    await world.install_fleet("a")
    world.start(Writer.DRIVER_CLUSTER)
    world.start()
    await world.wait_until_done("a")
    assert world.created() == []
    assert await world.steps() == [(name, True) for name in CHAIN]
