"""The node role of discovery: reports the facts of a machine.

A DaemonSet without Kubernetes credentials.
"""
