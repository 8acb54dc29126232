"""The cluster role of telemetry: batches of a fleet as one page of metrics. A Deployment."""
