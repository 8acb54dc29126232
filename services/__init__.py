"""The five services; each meets the others on the bus alone."""
