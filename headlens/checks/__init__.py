"""Whether what is measured on a model can be believed."""
