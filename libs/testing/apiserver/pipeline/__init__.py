"""The steps of a request: parse, apply faults, execute, record in the journal."""
