"""The attention of single inputs, as data."""
