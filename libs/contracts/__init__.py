"""Data that crosses process boundaries: subjects, identities, streams, messages, stored records.

Processes share nothing else, but for the words in which they tell people of it. The package holds
frozen msgspec structs, enums and pure functions that encode, decode, admit and tell them: no I/O,
clocks or randomness. Beside the standard library it imports only msgspec.
"""
