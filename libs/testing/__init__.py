"""The simulated fleet: the ground of the tests, the demo and the bench.

Here may live: a virtual-time loop, an embedded nats-server and ways to hurt it, a simulated API
server, fake kubelets and machines. Typed and tested like everything else. Here must not live:
anything that a service needs in production, or an import of a service.
"""
