"""What heads look at: scorers, passes over a corpus, evidence and tags."""
