"""Whether two artifacts compute the same thing: comparison, verdict, replay and reports.

``compare`` turns pairs of outputs into numbers, ``verdict`` holds those against a tolerance, ``replay`` runs the same
feeds through two artifacts, and ``values`` holds what they return.
"""
