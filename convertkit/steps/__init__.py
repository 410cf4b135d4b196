"""The tasks of an export, and how they hang together.

``describe`` the source → ``make`` (convert it, then each pass, then each step of the target) → ``recorded`` (run what
was made on the inputs of the verification) → ``verify`` (compare) → ``judge`` (accuracy) → ``measure`` → ``finish``.
``plan`` says which of them an export has, ``session`` runs them for each target.
"""
