"""System checks (`manage.py check`): the database, the settings, the defaults that no deployment may keep."""
