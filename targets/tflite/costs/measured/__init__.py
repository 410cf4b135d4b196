"""Cost tables made from times: of the machine at hand, or of an emulated core."""
