"""A fake kubelet: real requests to the API server, simulated containers.

Pod lifecycles, heartbeats, reboots, and fleets of a thousand nodes in one process. Durations and
outcomes come from `libs.forecast.world`; real agents run in containers through `container_process`.
"""
