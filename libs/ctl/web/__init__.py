"""`sluice web`: one read-only page about the fleet.

`feed.py` follows Kubernetes and the bus, `board.py` keeps what the page shows as data, which pure
functions decide (`model.py`, `history.py`, `story.py`), and `server.py` serves the files in `page`
and pushes changes.
"""
