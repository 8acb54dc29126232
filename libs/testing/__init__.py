"""Simulations for tests, demo and bench: virtual time, API server, cluster, machines, bus; and real
servers to break.

Nothing here is needed by a service in production, and no service is imported.
"""
