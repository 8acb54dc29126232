"""The DaemonSet controller: one pod on each node that a DaemonSet selects.

The decisions are pure functions over what the caches hold (`nodes`, `rolling`, `revisions`,
`status`); `controller` reads, calls them and carries out what they say.
"""
