"""Showing pages to people: their pictures, and where words stand on them. No Django in here."""
