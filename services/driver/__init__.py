"""Bring the driver stack up.

The cluster role turns policies into operands, owner labels and status. The node role carries out
commands (quiesce, swap) and keeps the gate. Neither decides when a node is upgraded.
"""
