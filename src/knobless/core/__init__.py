"""Distributions and the loop: NumPy only, no user types, no files."""
