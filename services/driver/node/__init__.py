"""The node role of driver: unloads and admits drivers by command.

A DaemonSet without Kubernetes credentials.
"""
