"""Resources: a package each: its rules (service), its queries (repository), the bodies of its requests and answers."""
