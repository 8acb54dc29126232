"""Forecast a rollout: play the engine forward in a simulated world, several times.

Contains plays, what is concluded from them, and the small cluster in memory and virtual time on
which decisions are carried out (`stage`). Makes no decision about nodes of its own, and uses no
clock and no randomness except the world's.
"""
