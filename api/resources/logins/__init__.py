"""Sign-ins of people: a session cookie that stands for a user until it expires."""
