"""Experiments described in a file: which commands run, on which models and seeds, and what was published."""
