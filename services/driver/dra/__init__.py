"""Dynamic resource allocation on a node: publishes its GPUs and prepares claims for pods.

`devices` names the GPUs and describes them, `slices` and `resources` are objects of the API server,
`checkpoint` is what is prepared; these are pure. `claims` answers the kubelet, `publication` keeps
the node's ResourceSlice, `offering` reads the GPUs and decides what both have, and `agent` runs all
of it on the bus. It is the only agent that has an account at the API server.
"""
