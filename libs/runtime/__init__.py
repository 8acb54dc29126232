"""The one shape of a service.

Phases, signals, guarded tasks, settings, logs, metrics, the HTTP server, back-off; and what is
given to everything else instead of being reached for: clock, ids, random. Here must not live:
anything about GPUs, Kubernetes or NATS; a service of another product could stand on this package.
"""
