"""The common frame of a service: phases, signals, tasks, settings, logs, metrics and HTTP server.

Also the sources that simulations replace: clock, ids, random and back-off. Nothing in this package
depends on GPUs, Kubernetes or NATS.
"""
