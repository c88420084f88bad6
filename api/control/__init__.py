"""Control: what runs beside requests, and brings the database, the machines and the scheduler together."""
