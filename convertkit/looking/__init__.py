"""Looking at models: what is in one, where it can go, what is installed, how fast it is."""
