"""python -m accessa.embedded_postgres start|stop|status"""

import argparse
import sys

from accessa.embedded_postgres.installation import EmbeddedError
from accessa.embedded_postgres.server import EmbeddedServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m accessa.embedded_postgres", description="The embedded PostgreSQL.")
    parser.add_argument("action", choices=["start", "stop", "status"])
    action = parser.parse_args().action
    server = EmbeddedServer()
    try:
        if action == "start":
            print("started" if server.ensure_running() else "already running", server.data)
        elif action == "stop":
            print("stopped" if server.stop() else "not running", server.data)
        else:
            print("running" if server.is_running else "not running", server.data)
            return 0 if server.is_running else 3
    except EmbeddedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
