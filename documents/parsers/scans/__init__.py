"""Reading pictures of pages: what the OCR's child does."""
