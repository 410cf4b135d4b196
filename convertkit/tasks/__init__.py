"""Graphs of pure tasks: one scheduler runs them, here or on a cluster, and a store keeps what they made.

A *task* says what it needs and what decides its result; its *key* is the hash of all that.  Equal keys are one task,
which runs once, and never where the *store* has its result.  An *executor* is where tasks run, *resources* are live
things that they share (a framework's worker with a model in it), and a *result* is a value: small dataclasses, arrays,
and paths of files in the task's own folder.

This package knows nothing of models: it imports no other part of convertkit but errors, progress and artifacts.
"""
