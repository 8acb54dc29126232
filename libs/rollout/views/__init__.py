"""What the engine sees: the fleet as data, whoever looked and however.

The live scheduler makes these from its caches, a simulation from its own state. Views hold what a
decision asks for and nothing else; all times are unix seconds. Must not know what is decided.
"""
