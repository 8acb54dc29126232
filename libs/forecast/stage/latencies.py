"""Latencies of the cluster's own machinery, which no world is asked about."""

import msgspec


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, as seen with a real control plane and healthy agents."""

    write: float = 0.02
    """Until a request of the scheduler is carried out and answered."""
    request_timeout: float = 3.0
    """Until an unanswered request is given up."""
    eviction_retry: float = 5.0
    """Between two requests to evict a pod that a disruption budget keeps."""

    taint: float = 0.3
    """Until the node lifecycle controller follows a cordon."""
    daemon_set: float = 0.2
    """Until the DaemonSet controller follows a Node or a pod."""
    kubelet: float = 0.1
    """Until a kubelet sees a pod, or the API server a container."""
    grace_period: float = 30.0
    """Of driver pods."""
    not_ready_after: float = 40.0
    """Until a silent node is NotReady."""
    pod_gc: float = 40.0
    """Until the pods of a deleted Node are deleted."""
    restart_backoff: float = 10.0
    """Before a crashed container restarts; doubles with each crash."""
    restart_backoff_max: float = 300.0
    pod_scheduling: float = 5.0
    """Until the Kubernetes scheduler fills a node that is open again."""

    slot_poke: float = 0.1
    """From a slot's write until the agent has read it."""
    slot_reread: float = 60.0
    """Until an agent that missed a poke reads its slot."""
    agent_start: float = 5.0
    """From the start of a machine or an agent until it has read its slot."""
    silent_after: float = 150.0
    """From an agent's death until it counts as silent; its last beat was earlier."""
    device_close: float = 1.0
    """Until a component has closed the devices."""
    preflight: float = 2.0
    operand_pause: float = 3.0
    """Until foreign operands have left or returned after their label changed."""
    unload_retry: float = 5.0
    """Between two attempts at an unload that found holders."""
