"""User policies: what the sessions of one user may hold together, by the kind of user."""
