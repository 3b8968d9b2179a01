"""Page images and the positions of words on them, for display. No Django in here."""
