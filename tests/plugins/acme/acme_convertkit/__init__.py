"""Somebody else's converter, pass and target for convertkit."""
