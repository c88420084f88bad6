"""Images that sessions may use."""
