"""Whether two artifacts compute the same thing: comparison, replay and the search for the first departure."""
