"""What becomes of one object, whoever keeps it: its parts and its bytes, how its fields merge, who
owns them, what patches make of it, what selects it.

Must not know which kinds are served, nor that anything is stored.
"""
