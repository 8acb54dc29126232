"""The frames of the live view: a screen's lines, each as wide as the terminal at most. Pure.

Colours are the sixteen of the terminal's own palette, which its owner has chosen to be readable on
a dark or a light background; nothing is told by colour alone.
"""
