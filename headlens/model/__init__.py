"""One model: its parts, the seam that looks at its heads and changes them, and its weights."""
