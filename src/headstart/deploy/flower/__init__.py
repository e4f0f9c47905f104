"""Deployment on Flower: the client's half, the server's half, and the words between them."""
