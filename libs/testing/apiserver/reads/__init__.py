"""One object, a list, a watch: from the store to whoever asks for it.

Must not know how anything is written.
"""
