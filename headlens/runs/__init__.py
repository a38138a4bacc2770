"""Run directories: how they are recorded, and how they are read back."""
