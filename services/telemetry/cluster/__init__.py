"""The cluster role of telemetry: batches of a fleet become one page of metrics. A Deployment."""
