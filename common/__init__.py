"""What reservoir, appliance and control API share, and nothing else: it knows none of them."""
