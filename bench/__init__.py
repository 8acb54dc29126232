"""Benchmarks, printed as ratios within one run, because absolute times vary on shared machines."""
