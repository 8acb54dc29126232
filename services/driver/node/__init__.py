"""The node role of driver: unload and admit drivers by command.

A DaemonSet without Kubernetes credentials.
"""
