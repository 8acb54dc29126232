"""Data that crosses process boundaries: subjects, identities, streams, messages, stored records.

Processes share nothing else. The package holds frozen msgspec structs, enums and pure functions
that encode and decode them: no I/O, clocks, randomness or decisions. It imports only msgspec.
"""
