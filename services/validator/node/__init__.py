"""The node role of validator: the chain from driver to plugin becomes evidence.

A DaemonSet, without Kubernetes credentials.
"""
