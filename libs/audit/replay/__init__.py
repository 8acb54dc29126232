"""From revisions back to objects: what every Node, Rollout and policy was at any revision.

Here may live: reading a journal, and what follows from it without an opinion. Here must not live:
what is right or wrong; that is for `libs.audit.checks`.
"""
