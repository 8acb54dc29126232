"""Collect what a verb answers from Kubernetes, the scheduler and the stream of events."""
