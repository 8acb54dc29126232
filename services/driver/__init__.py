"""Brings the driver stack up.

In the cluster: policies become operands, owner labels and status. On a node: it carries out
commands (quiesce, swap, install) and keeps the gate. It never decides when a node moves.
"""
