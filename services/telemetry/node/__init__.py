"""The node role of telemetry: GPU samples as batches on the bus and as a page of metrics.

A DaemonSet without Kubernetes credentials.
"""
