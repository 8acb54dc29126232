"""Nodes under an upgrade lease: one function for each state (docs/states.md#upgrade)."""
