"""Real HTTP servers that stand in for the vendors: they count what was bought, and misbehave when told to."""
