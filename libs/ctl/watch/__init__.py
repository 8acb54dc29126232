"""The live view of `sluice watch`: caches are followed, and what changed in the frame is drawn.

`fleet` keeps what is known, `screen` what the person chose; `views.frame` makes a frame of both.
These are pure. `sources`, `terminal` and `actions` are the edges; `program` connects them.
"""
