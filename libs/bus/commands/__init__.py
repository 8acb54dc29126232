"""Receive the commands and checks of one component of one node: admit, execute, report."""
