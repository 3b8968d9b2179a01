"""Answers: the sentences of documents and statutes that answer a question, each with its citation."""
