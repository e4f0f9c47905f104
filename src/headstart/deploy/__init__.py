"""Real clients: what stands between a federation and the machines it runs on."""
