"""Taking heads out, and what that costs."""
