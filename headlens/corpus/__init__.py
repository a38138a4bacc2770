"""Texts with their annotations, and how they become model inputs."""
