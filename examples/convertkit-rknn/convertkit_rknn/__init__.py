"""Rockchip NPUs as a target of convertkit, through entry points alone."""

CONVERTKIT_PLUGIN_API = "1.1"
