"""The configuration of container runtimes: what has to be added so that they know our handlers.

`containerd` decides from the texts that are there which files are written; nothing of a person's
text is lost, and what cannot be understood is left alone.
"""
