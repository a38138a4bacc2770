"""Checkpoints without some of their heads: cut, silenced, and saved."""
