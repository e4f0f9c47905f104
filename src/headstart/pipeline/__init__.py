"""A run: a configuration in, a folder of results out."""
