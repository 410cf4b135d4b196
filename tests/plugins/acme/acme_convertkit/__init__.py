"""Somebody else's converter, pass and target for convertkit."""

CONVERTKIT_PLUGIN_API = "1.0"
