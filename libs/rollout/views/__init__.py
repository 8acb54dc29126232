"""Views: the fleet as data, as far as decisions need it.

The live scheduler builds them from its caches, a simulation from its own state. All times are unix
seconds.
"""
