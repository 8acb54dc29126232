"""The upgrade engine: decide, foresee, judge.

Here may live: `decide` and its parts, the forecast, the world model, and the audit: pure functions
over views. Here must not live: I/O, a clock, asyncio, or an import of `bus` or `kube`; whoever
calls brings the time and carries the decision out. Imports policy and contracts.
"""
