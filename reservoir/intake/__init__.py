"""Import: from carried media into a site's store."""
