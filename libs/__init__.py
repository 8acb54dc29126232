"""What the services are made of."""
