"""Media: the parts of a bundle that are carried to one site, and what a site says that it holds."""
