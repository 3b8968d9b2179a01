"""Views of tenants' pages."""
