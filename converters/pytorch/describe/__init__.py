"""What a model takes and gives: its inputs, free sizes and state, found by its file and by running it."""
