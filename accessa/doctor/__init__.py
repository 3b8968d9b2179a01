"""`manage.py doctor`: end-to-end checks of a deployment, each with a remedy."""
