"""What headlens costs, one part to a file; `performance.py` runs them."""
