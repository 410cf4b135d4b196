"""Calibration: a float model runs over data, and every tensor's range is measured and chosen."""
