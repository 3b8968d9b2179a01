"""`manage.py doctor`: does each thing for real, and says what to do about what does not work."""
