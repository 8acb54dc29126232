"""The bus: how processes meet.

A small port (`Bus`) with two implementations, NATS and one inside the process, and above it,
written once, what the planes promise: slots and the desk that obeys them, reports and their mirror,
beats, events, telemetry, asks. The only importer of nats. Here must not live: what a command means,
or any subject spelt out; both are `libs.contracts`.
"""
