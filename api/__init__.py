"""Control API: users, projects, nodes, images, sessions, and the scheduler that places them."""
