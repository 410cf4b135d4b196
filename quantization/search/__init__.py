"""The closed loop: plans are tried on samples that calibration has not seen, and repaired where they lose."""
