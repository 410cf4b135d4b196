"""Measuring x86 processors that are older than the one at hand."""
