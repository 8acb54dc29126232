"""Data that crosses process boundaries: subjects, identities, streams, messages, stored records.

Processes share nothing else. The package holds frozen msgspec structs, enums and pure functions
that encode, decode and admit them: no I/O, clocks or randomness. Beside the standard library it
imports only msgspec.
"""
