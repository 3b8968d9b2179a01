"""OAuth: consent, token endpoints, token refresh and the token vault."""
