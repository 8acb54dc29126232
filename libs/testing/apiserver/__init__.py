"""A Kubernetes API server in one process, with the semantics of the real one for what we use.

Here may live: objects and their revisions, patches and field ownership, watches, admission of
custom resources, faults on demand, the journal. Here must not live: what controllers do with
objects (`libs.testing.cluster`), and any knowledge of what we use the objects for.

Each room imports only those before it; those on one line do not know each other:
`objects`, `schemas`, `kinds`, `storage` | `requests` | `showing`, `reads` | `writes`, `serving`.
`status` is below them all, `server` above; `reads` and `serving` know `faults`, `serving` the
`journal`. Ways in are `inprocess` and `http`.
"""
