"""The site: its model, its inventory, and what is done with it: deployed, verified, reported, rehearsed in a lab."""
