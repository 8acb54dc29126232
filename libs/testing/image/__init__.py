"""`make image`: one image for all services and agents, with a builder or without any."""
