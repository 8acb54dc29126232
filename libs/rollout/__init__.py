"""The upgrade engine: pure functions from views of a fleet to decisions.

No I/O, no clock, no asyncio, no import of `bus` or `kube`: the caller passes the time in and
carries the decision out.
"""
