"""Reconciliation of a pool's Rollout with its nodes (docs/states.md#reconcile).

`contribution` derives the part of one node from its record alone; `pool_tally` keeps the sets of
all nodes; `evaluation` derives what the pool allows, and `status` what to write.
"""
