"""Float graphs rewritten into the forms that quantize well, without changing what they compute."""
