"""The pages of the console, on the real API."""
