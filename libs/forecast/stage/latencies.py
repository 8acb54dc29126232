"""How long those things take that no world is asked about: the cluster's own machinery.

The figures are what was seen of a real control plane and of agents that work as they should.
"""

import msgspec


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    write: float = 0.02
    """Until a request of ours is carried out and answered."""
    request_timeout: float = 3.0
    """Until a request that is not answered is given up."""
    eviction_retry: float = 5.0
    """Between two requests to evict a pod that a disruption budget keeps."""

    taint: float = 0.3
    """Until the node lifecycle controller follows a cordon."""
    daemon_set: float = 0.2
    """Until the DaemonSet controller follows a Node or a pod."""
    kubelet: float = 0.1
    """Until a kubelet has heard of a pod, or the API server of a container."""
    grace_period: float = 30.0
    """That a driver pod has to end."""
    not_ready_after: float = 40.0
    """Of silence until a node is NotReady."""
    pod_gc: float = 40.0
    """Until the pods of a deleted Node are."""
    restart_backoff: float = 10.0
    """Before a crashed container is started again; twice that after the next crash, and so on."""
    restart_backoff_max: float = 300.0
    pod_scheduling: float = 5.0
    """Until the Kubernetes scheduler fills a node that is open again."""

    slot_poke: float = 0.1
    """From a slot's write until the agent has read it."""
    slot_reread: float = 60.0
    """Until an agent that missed a poke reads its slot all the same."""
    agent_start: float = 5.0
    """From the start of a machine or an agent until it has read its slot."""
    silent_after: float = 150.0
    """From an agent's death until it counts as silent: its last beat was a while before."""
    device_close: float = 1.0
    """Until a component has let go of the devices."""
    preflight: float = 2.0
    """A preflight."""
    operand_pause: float = 3.0
    """Until operands that are not ours have left or are back, once their label says so."""
    unload_retry: float = 5.0
    """Between two attempts at an unload that found holders."""
