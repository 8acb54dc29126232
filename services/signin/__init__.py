"""Sign-in: decides for NATS who may connect, by ServiceAccount tokens.

nats-server asks this service (auth callout) before it accepts a connection. The service holds the
key that signs rights, so it is a process of its own and parses nothing that nodes report.
"""
