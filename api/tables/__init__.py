"""Tables: the rows of every resource, as SQLAlchemy maps them."""
