"""What NATS and sign-in need before they start: keys, certificates and NATS's configuration.

A role that runs once, before an installation and before each upgrade of it. What exists and is
right stays as it is.
"""
