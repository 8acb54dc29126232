"""Carry out decisions: writes to the API server, command slots, evictions."""
