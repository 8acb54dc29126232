"""Drivers that are installed on the machine itself, from files that are named by digest.

Nothing of a file is executed: it is unpacked into Sluice's own folder (`store`), and from there it
is placed on the machine such that every step can be taken back (`installation`).
"""
