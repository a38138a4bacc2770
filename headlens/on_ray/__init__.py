"""Units of work on Ray: workers on this machine or on many, each with a copy of the model."""
