"""What a model takes and gives: its inputs, dynamic sizes and state, found by its file and by running it."""
