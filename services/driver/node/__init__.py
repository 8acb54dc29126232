"""The node role of driver: commands become a driver that is there or gone.

A DaemonSet, without Kubernetes credentials.
"""
