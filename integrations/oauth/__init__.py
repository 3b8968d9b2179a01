"""How a tenant lets us in at a provider, and how we get tokens for it."""
