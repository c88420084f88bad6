"""The steps of the database schema."""
