"""Carry out the verbs: collect or decide, then show or write."""
