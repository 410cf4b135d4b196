"""What LiteRT's kernels cost, as data by device: see ``docs/measurements/device-costs.md``."""
