"""Publications: from a site's store to the trees that its nodes read, numbered, switched, taken back and pruned."""
