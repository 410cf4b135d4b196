"""Engines: compilers and runtimes that do not go beside ours, in environments of their own that are made on demand."""
