"""What each head writes for one input, its share of what its layer writes, and its effect on a logit."""
