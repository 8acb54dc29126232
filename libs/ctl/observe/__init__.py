"""The fleet of a running GPU Operator, told where Sluice is not installed. Nothing is written."""
