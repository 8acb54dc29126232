"""Nodes that nobody is changing: where their policy wants them, or why not and what it would take.

Here lives the look at a node without a lease of ours. Must not know how a change goes on once it
was begun (`underway`), nor how many may begin (`allocate`).
"""

from libs.rollout.at_rest.dispatch import step_at_rest

__all__ = ["step_at_rest"]
