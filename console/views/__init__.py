"""Staff's pages: what they ask for, one module a subject."""
