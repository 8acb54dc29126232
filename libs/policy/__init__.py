"""The policy model: structs, defaults, validation, digests, and rendering of operands.

Pure: no I/O and no clocks; imports `libs.contracts` only. Nothing here decides *when* a node
moves; that is `libs.rollout`.
"""
