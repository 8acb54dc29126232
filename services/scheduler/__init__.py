"""Moves a fleet from one driver to the next: the shell around `libs.rollout`.

It observes, lets the engine decide, acts, and reports. It is the only writer of commands, of the
upgrade's fields on Nodes, and of Rollouts. It holds no opinion of its own on what comes next.
"""
