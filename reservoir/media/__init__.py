"""Media: what of a bundle is carried to one site, and what a site says that it holds."""
