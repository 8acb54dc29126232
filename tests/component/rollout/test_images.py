"""Driver images on simulated clusters: no node is drained without the image of its new driver."""

from msgspec.structs import replace

from libs.contracts.node import NodeRequest, Operation
from libs.policy.wanted import InstallMethod
from libs.rollout.decide import decide
from libs.rollout.decision import Decision, WriteNode
from libs.rollout.views.fleet import Fleet, Instant
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import IMAGES, scenario

_DRAINED = (Operation.UPGRADE, Operation.SAME_LABEL, Operation.TAKE_OVER)


class _Starts:
    """The nodes that begin to be drained, with and without the image."""

    def __init__(self) -> None:
        self.with_image = 0
        self.without_image: list[str] = []

    def decide(self, fleet: Fleet, now: Instant) -> Decision:
        decision = decide(fleet, now)
        for name, step in decision.steps.items():
            for action in step.actions:
                if isinstance(action, WriteNode) and action.lowers_capacity:
                    self._observe(fleet, name, action)
        return decision

    def _observe(self, fleet: Fleet, name: str, write: WriteNode) -> None:
        node, record = fleet.nodes[name], write.applied.record
        if record is None or node.current_lease is not None or record.operation not in _DRAINED:
            return
        pool = fleet.pools[record.pool]
        if (
            pool.method is not InstallMethod.CONTAINER
            or node.request is NodeRequest.WITHOUT_PREFLIGHT
        ):
            return
        pull = node.image_pull
        if pull is not None and pull.present and pull.label == record.label:
            self.with_image += 1
        else:
            self.without_image.append(name)


def test_no_node_is_drained_without_its_image() -> None:
    starts = _Starts()
    for seed in range(IMAGES + 200, IMAGES + 215):
        result = run_scenario(scenario(seed), starts.decide)
        assert result.failure is None
    assert starts.without_image == []
    assert starts.with_image >= 10


def test_the_check_finds_nodes_without_images() -> None:
    starts = _Starts()
    for seed in range(IMAGES + 200, IMAGES + 205):
        plain = scenario(seed)
        without = tuple(
            replace(
                pool,
                builds={
                    target: {key: replace(build, image="") for key, build in builds.items()}
                    for target, builds in pool.builds.items()
                },
            )
            for pool in plain.pools
        )
        run_scenario(replace(plain, pools=without), starts.decide)
    assert starts.without_image
