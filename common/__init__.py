"""The base of all packages: what reservoir, appliance and control API share; it knows none of them."""
