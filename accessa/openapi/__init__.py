"""What the OpenAPI schema says beyond what the views and serializers say themselves."""
