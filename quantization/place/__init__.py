"""Which values become integers, with which scales, and how that is written into the graph."""
