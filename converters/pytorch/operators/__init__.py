"""Operators that an exporter or a runtime lacks, in those that it has."""
