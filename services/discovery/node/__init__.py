"""The node role of discovery: report the facts of a machine.

A DaemonSet without Kubernetes credentials.
"""
