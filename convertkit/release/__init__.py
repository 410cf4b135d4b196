"""Releases: many models, targets and precisions of one recipe, with gates, delivered as one folder or not at all."""
