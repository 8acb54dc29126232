"""What must be there before Sluice runs: its namespace, its accounts, their rights.

A set of its own, applied by whoever installs Sluice and never by a service of ours: a service that
can grant rights has them all.
"""
