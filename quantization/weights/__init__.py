"""Weights as integers: rounding, blocks, tables, and scales moved between layers."""
