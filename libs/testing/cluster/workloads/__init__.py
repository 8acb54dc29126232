"""Workloads that come back elsewhere: ReplicaSets and Jobs.

The decisions are pure functions (`wishes`); the controllers beside them carry them out.
"""
