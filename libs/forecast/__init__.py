"""Forecast a rollout: play the engine forward in a simulated world, several times.

Contains plays, their evaluation, and the small cluster in memory and virtual time on which
decisions are carried out (`stage`). Makes no decisions about nodes itself. Uses no clock, and no
randomness but that of the world.
"""
