"""The Rollout of a pool, reconciled with its nodes (docs/states.md#reconcile).

`contribution` derives the part of one node from its record alone; `tally` keeps the sets of all
nodes; `evaluation` derives what the pool allows, with `harm` and `conditions`; `allocation` grants
starts to the candidates in `queues`, within the `headroom`; `status` derives the write.
`pool_decider` ties them together.
"""
