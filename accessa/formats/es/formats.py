"""Formats of Spanish pages."""

# Numbers as in the United States and Mexico, whose members read them in their documents: $1,234.50.
DATE_FORMAT = "j b Y"
DATETIME_FORMAT = "j b Y, H:i"
TIME_FORMAT = "H:i"
DECIMAL_SEPARATOR = "."
THOUSAND_SEPARATOR = ","
