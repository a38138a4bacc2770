"""What is about files, numbers and words, and nothing of models."""

__version__ = "0.1.0"
