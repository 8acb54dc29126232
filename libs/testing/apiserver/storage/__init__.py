"""The stored objects under one revision counter, their history, and the watches of them."""
