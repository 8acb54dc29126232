"""Build the view of a node from the caches, the bus and the leader's state."""

from libs.contracts.identities import Writer
from libs.contracts.node import NodeRecord
from libs.contracts.reports import StateKind
from libs.rollout.views.node import NodeView
from services.scheduler.inputs import Inputs
from services.scheduler.node_state import NodeStates
from services.scheduler.snapshot.claims import ClaimUsers
from services.scheduler.snapshot.mig import ConfigFiles, WantedMigs
from services.scheduler.snapshot.node_view import NodeContext, is_tracked, node_view
from services.scheduler.snapshot.pod_view import is_finished, is_image_pod, is_of_daemon_set
from services.scheduler.snapshot.pools import UNASSIGNED, PoolSnapshot
from services.scheduler.snapshot.reports import node_reports


class NodeViews:
    """The views of one leader, and which nodes depend on an object that several may share."""

    def __init__(self, inputs: Inputs, node_states: NodeStates) -> None:
        self._inputs = inputs
        self._informers = inputs.informers
        self._node_states = node_states
        self.claim_users = ClaimUsers()
        config_maps = inputs.informers.config_maps.cache
        self.wanted_migs = WantedMigs(
            ConfigFiles(
                config_maps.get,
                why_unreadable=lambda key: config_maps.unreadable.get(key, ""),
                namespace=inputs.namespace,
            )
        )

    def of(self, name: str, snapshot: PoolSnapshot) -> NodeView | None:
        """Return the view of a node; None if there is none, or it is not tracked."""
        inputs = self._inputs
        node = self._informers.nodes.cache.get(name)
        if node is None or not is_tracked(node):
            self.claim_users.update(name, ())
            self.wanted_migs.forget(name)
            return None
        assignment = snapshot.assignments.get(name, UNASSIGNED)
        pods = inputs.pod_cache.of(name)
        self.claim_users.update(name, pods or ())
        record = node.record
        recorded = record.pool if isinstance(record, NodeRecord) else ""
        pool = snapshot.pools.get(recorded or assignment.pool)
        reports = node_reports(
            node,
            absent_agents=snapshot.absent_agents,
            reports=inputs.reports,
            heartbeats=inputs.heartbeats,
            slot_cache=inputs.slot_cache,
            now=inputs.env.clock.now(),
        )
        others = self._informers.other_pods.cache.by_index("node", name)
        context = NodeContext(
            assignment=assignment,
            upgrade=None if pool is None else pool.upgrade,
            absent_agents=snapshot.absent_agents,
            namespace=inputs.namespace,
            driver_pods=tuple(self._informers.driver_pods.cache.by_index("node", name)),
            image_pods=tuple(pod for pod in others if is_image_pod(pod)),
            pods=pods,
            claim_of=self._informers.resource_claims.cache.get,
            runs_control_plane=any(
                not (is_of_daemon_set(pod) or is_finished(pod) or is_image_pod(pod))
                for pod in others
            ),
            reports=reports,
            chooses_plugin_config=assignment.pool in snapshot.with_plugin_configs,
            mig=self.wanted_migs.of(
                node,
                snapshot.mig.get(assignment.pool),
                report=inputs.reports.get(name, Writer.DISCOVERY, StateKind.FACTS),
                described=reports.described,
            ),
            state=self._node_states.of_uid(name, node.metadata.uid),
        )
        return node_view(node, context)
