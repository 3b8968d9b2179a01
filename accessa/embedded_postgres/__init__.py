"""A PostgreSQL with pgvector out of a wheel, for those who bring none."""
