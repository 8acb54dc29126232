"""All nodes with GPUs, each with what its evidence is worth, as they are when somebody looks."""

from collections.abc import Iterator

from libs.bus.mirror import Mirror
from libs.contracts.identities import Writer
from libs.contracts.message import Unreadable
from libs.contracts.reports import StateKind
from libs.kube.cache import Cache
from libs.policy.belonging import Belonging
from services.validator.cluster.judging import Judgement, judged
from services.validator.cluster.things import Node


class Gathering:
    """Reads a cache of Nodes and a mirror of reports."""

    def __init__(self, nodes: Cache[Node], mirror: Mirror, *, belonging: Belonging) -> None:
        self._nodes = nodes
        self._belonging = belonging
        self._mirror = mirror

    def judgements(self) -> Iterator[Judgement]:
        """By the names of nodes."""
        for node in sorted(self._nodes, key=lambda one: one.metadata.name):
            yield self._judgement(node)

    def _judgement(self, node: Node) -> Judgement:
        report = self._mirror.get(node.metadata.name, Writer.VALIDATOR, StateKind.EVIDENCE)
        pool = node.pool or self._belonging.of(node.metadata.name)
        try:
            return judged(node, report, pool=pool)
        except Unreadable:
            return judged(node, None, pool=pool)
