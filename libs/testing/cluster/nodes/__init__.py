"""What a cluster does about its nodes: who is silent, what keeps pods off, which pods must leave.

The decisions are pure functions (`health`); the controllers beside them carry them out.
"""
