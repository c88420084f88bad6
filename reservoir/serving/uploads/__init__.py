"""Users' own Python packages: what they may be called, and the server that takes them."""
