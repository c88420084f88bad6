"""Resource groups: nodes for a purpose, and who may use them."""
