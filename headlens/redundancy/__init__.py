"""What heads write, which are alike, and models without the spare ones."""
