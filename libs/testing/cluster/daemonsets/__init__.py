"""The DaemonSet controller; the decisions are pure functions in `plan` and `revisions`."""
