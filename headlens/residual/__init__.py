"""What heads write into the residual stream, and what it does to the logits."""
