"""The cluster role of validator: evidence by node and by pool, as metrics. A Deployment."""
