"""What the product promises about speed and memory, measured beside its rivals in the same run."""
