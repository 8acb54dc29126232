"""Answers as terminal output: pure functions from data to `rich` renderables."""
