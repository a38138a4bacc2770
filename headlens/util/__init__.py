"""What is about files, numbers and words, and nothing of models."""
