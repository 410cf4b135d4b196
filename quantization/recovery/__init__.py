"""Training on unlabelled data: a changed model learns the original's answers again."""
