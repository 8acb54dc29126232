"""The checks of the invariants, one module each.

A check turns the replayed journal of an `AuditCase` into findings. Reading the journal itself is
the job of `libs.audit.replay`.
"""
