"""Media: what of a bundle is carried to one site, and what a site says that it holds.

`reservoir.bundle.medium` has `Medium`, the description that lies on one, since whoever reads a bundle may meet it.
`receipt` is the form of a site's receipts; `reservoir.intake.receipt` writes one from the store.
"""
