"""Django's PostgreSQL backend, with the server included."""
