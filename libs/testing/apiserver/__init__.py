"""A Kubernetes API server in one process, with the semantics of a real one for what Sluice uses.

The trip of a request: `http` or the transport of `server`, then `handler` and `requests`, then
`reads` or `writes`; these use the `store`, `kinds` and `objects`. Controllers are in
`libs.testing.cluster`.
"""
