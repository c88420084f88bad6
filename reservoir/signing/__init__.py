"""Keys and signatures: the integrator's and the site's Ed25519 keys, and OpenPGP for package repositories."""
