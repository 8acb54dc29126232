"""The way of a request: authenticate, apply faults, handle, record the revision."""
