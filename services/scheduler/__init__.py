"""The scheduler: move nodes from one driver to the next, as decided by `libs.rollout`.

It is the only writer of commands, of the upgrade's fields on Nodes, and of Rollouts.
"""
