"""The node role of validator: checks of the driver become evidence.

A DaemonSet without Kubernetes credentials.
"""
