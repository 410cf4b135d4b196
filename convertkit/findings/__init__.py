"""What is measured on a delivered artifact: precision, quality on held-out samples, speed, interface."""
