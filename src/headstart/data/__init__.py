"""Datasets, how they are split among clients, and how unlike the clients then are."""
