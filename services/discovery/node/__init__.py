"""The node role of discovery: the machine becomes facts.

A DaemonSet, without Kubernetes credentials.
"""
