"""A real Kubernetes control plane on the loopback: found or built, started, hurt, and taken away.

Here may live: where its binaries are, how they are built and started, what a test may do to them.
Here must not live: any client of it beyond what tells that it is ready, and what tests use it for.
"""
