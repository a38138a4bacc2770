"""``python -m headlens`` does what ``headlens`` does."""

from headlens.cli import main

main(prog_name="headlens")
