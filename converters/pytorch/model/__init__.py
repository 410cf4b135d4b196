"""What the other folders share: the loaded model as a function, its inputs and state as values."""
