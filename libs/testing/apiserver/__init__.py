"""A Kubernetes API server in one process, with the semantics of a real one for what Sluice uses.

What controllers do with objects is in `libs.testing.cluster`. Each package imports only those
before it: `objects`, `schemas`, `kinds`, `storage`, `requests`, `printers`, `reads`, `writes`,
`pipeline`, `server`. The entry points are `inprocess` and `http`.
"""
