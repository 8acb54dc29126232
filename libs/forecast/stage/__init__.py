"""A small cluster in memory and virtual time, on which decisions are carried out.

Makes no decision about a rollout. `libs.testing.stage` adds people, faults and a journal.
"""
