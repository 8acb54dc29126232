"""What limits accounts of Sluice at the API server beyond their rights, which cannot say it.

RBAC grants a verb on a kind. Whoever takes over such an account could write any field of any such
object: a DaemonSet with a Secret and the account of another program, a taint on every Node, the
slice of devices of a node that is not its own. These policies know what Sluice writes, and refuse
the rest. Pure.
"""
