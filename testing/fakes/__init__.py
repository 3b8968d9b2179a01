"""Fake vendors: real HTTP servers with a ledger of purchases and fault injection."""
