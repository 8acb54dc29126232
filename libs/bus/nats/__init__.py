"""The bus on a NATS server. The only package that imports nats."""
