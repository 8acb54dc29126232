"""What the simulated API server shows of objects in a table, kind by kind.

Here may live: the columns of each kind and how a cell follows from an object and the time. All of
it is pure, and the same for get, list and watch. Here must not live: requests, or the table around
the rows (`libs.testing.apiserver.printers.tables`).
"""
