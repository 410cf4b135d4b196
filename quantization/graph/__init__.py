"""The graph as all parts of the quantizer see it: units, sizes, work, edits, running it."""
