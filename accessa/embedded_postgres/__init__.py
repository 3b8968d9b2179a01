"""Embedded PostgreSQL with pgvector, from a wheel, for development machines."""
