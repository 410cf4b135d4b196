"""PyTorch's files, told apart and read without executing anything and without torch."""
