"""Formats of dates and numbers by language (``FORMAT_MODULE_PATH``)."""
