"""What is kept, and who hears of it: objects as bytes under one counter of revisions, what selects
among them, and the watches that are told of each change.

Must not know what a request is, nor why an object changes.
"""
