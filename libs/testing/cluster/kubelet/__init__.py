"""A fake kubelet: it speaks to an API server like a real one, and pretends the rest.

Here may live: the lives of pods on a machine, heartbeats, reboots, and a fleet of a thousand such
machines in one process. Here must not live: how long anything takes and how it ends
(`rollout.world`), and what our agents do inside a container (`occupants` is the door for them).
"""
