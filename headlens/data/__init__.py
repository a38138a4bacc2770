"""What comes with the package: a small English treebank with coreference, and graded sentence pairs."""
