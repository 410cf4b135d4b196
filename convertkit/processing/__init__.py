"""Pre- and post-processing that becomes part of a model: what was asked for, as operators, and in NumPy."""
