"""Carry a decision out: writes, command slots, evictions."""
