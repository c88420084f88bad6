"""Keys with which programs act for a user."""
