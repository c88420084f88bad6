"""The control API: users, projects, nodes, images, sessions, the scheduler, and the engines that reach the machines."""
