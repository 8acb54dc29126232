"""What crosses a process boundary: data, and nothing but data.

Subjects, identities, streams, the typed body of every message, what we write on a Node and in a
Rollout, and the journal that the audit reads. Two processes that agree on this package understand
each other; nothing else is shared between them.

Here may live: frozen msgspec structs, closed lists of words, and pure functions from text to data
and back. Here must not live: I/O, clocks, chance, asyncio, or a decision about what to do. It
imports msgspec alone.
"""
