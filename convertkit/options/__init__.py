"""What the user asks for: flags and keywords as one value, and refusals of what contradicts or means nothing."""
