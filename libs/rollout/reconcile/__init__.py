"""What the nodes of a pool come to in its Rollout (docs/states.md#reconcile).

`bearing` says it of one node, from the Node's record alone; `Tally` holds the sets of all of them;
`reckon` says what follows for the steps of nodes, and `status` what the Rollout is to say. Must not
know who starts next.
"""
