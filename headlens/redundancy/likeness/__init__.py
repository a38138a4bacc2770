"""Which heads do the same: distances between what they look at, likeness of what they write, clusters."""
