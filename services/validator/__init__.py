"""Proves that a driver works.

On a node: the chain from driver to plugin, ending in evidence that names exactly what was proven.
In the cluster: it aggregates, and runs the checks that need a pod. It repairs nothing.
"""
