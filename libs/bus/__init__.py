"""The message bus between processes.

`port.Bus` has two implementations: `nats.bus` and, for tests and simulations, `libs.testing.bus`.
Slots, commands, reports, heartbeats, events, telemetry and queries are built on the port alone.
This is the only package that imports nats. Subjects and message types are in `libs.contracts`.
"""
