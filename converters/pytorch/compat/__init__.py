"""What we use of torch that its documentation does not promise, each in one place with a test of what we rely on.

Nothing else of ``converters/pytorch`` names a private module or attribute of torch, or changes something in it.  Where
a new version of torch moves or changes one of these, ``tests/converters/pytorch/test_compat.py`` names it.
"""
