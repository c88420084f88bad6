"""The logs of the site: what services of all nodes have told the journal."""
