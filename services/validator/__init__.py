"""Prove that a driver works.

The node role runs the checks and reports evidence that names exactly what was proven. The cluster
role aggregates the evidence. Neither repairs anything.
"""
