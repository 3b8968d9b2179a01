#!/usr/bin/env python
import os
import sys

from accessa.command_line_errors import run_command

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "accessa.settings")
    run_command(sys.argv)
