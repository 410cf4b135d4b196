"""Weights and whole channels taken out, the rest fitted to the old outputs."""
