"""What tenants open and press."""
