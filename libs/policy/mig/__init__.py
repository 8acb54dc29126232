"""MIG configurations: from a named configuration to the geometry of a node's GPUs.

`config` is the file as data, `parsing` reads it from YAML in mig-parted's format v1, and `defaults`
is the built-in one. `resolution` chooses the GPUs of a node and checks what `products` knows of
them; `geometry` compares the result with a node's facts.
"""
