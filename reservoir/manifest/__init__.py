"""The manifest: what a bundle must contain, in the words of the person who writes it. Pure: touches no file."""
