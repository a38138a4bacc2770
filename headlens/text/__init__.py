"""Corpora and words: reading treebanks, finding words in tokens, packing inputs and batches."""
