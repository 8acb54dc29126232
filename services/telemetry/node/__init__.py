"""The node role of telemetry: samples become batches and a page of metrics.

A DaemonSet, without Kubernetes credentials.
"""
