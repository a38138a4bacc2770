"""Benchmarks: what a model can do, measured example by example; one kind per file."""
