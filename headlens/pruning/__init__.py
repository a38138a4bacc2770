"""Models without some of their heads."""
