"""The incumbent's upgrade rules, written again in Python from its source, for simulations."""
