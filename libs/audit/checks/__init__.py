"""The invariants, a module each: what happened goes in, what was not kept comes out.

Here may live: opinions, each with its line of docs/invariants.md. Here must not live: reading the
journal; `libs.audit.replay` does that.
"""
