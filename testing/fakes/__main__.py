"""Command line `python -m testing.fakes`: the fake vendors as a process, for the demo and for kill loops."""

from __future__ import annotations

import argparse
import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from testing.fakes import bedrock, llamaparse, openai
from testing.fakes.bedrock import BedrockServer
from testing.fakes.ledger import Ledger
from testing.fakes.llamaparse import LlamaParseServer
from testing.fakes.openai import OpenAIServer
from testing.fakes.s3 import S3Server
from testing.fakes.server import Server

PARENT_CHECK = 0.5  # seconds


def main() -> None:
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    parent = os.getppid()
    options = _options()
    with ExitStack() as opened:
        servers = {server.name: _server_info(opened.enter_context(server)) for server in _servers(options)}
        line = json.dumps({**servers, "pid": os.getpid()})
        if options.state:
            _write(options.state, line)
        print(line, flush=True)
        while not stop.wait(PARENT_CHECK):
            if os.getppid() != parent:
                return


def _options() -> argparse.Namespace:
    """Parse the options. Port 0 is any free port; a vendor without a port is not started."""
    parser = argparse.ArgumentParser(prog="python -m testing.fakes", description=__doc__)
    parser.add_argument("--state", type=Path, help="write the addresses into this file too")
    parser.add_argument("--openai-port", type=int)
    parser.add_argument("--openai-key", default=openai.KEY)
    parser.add_argument("--openai-delay", type=float, default=0.0, help="seconds a call")
    parser.add_argument("--openai-requests-per-minute", type=int, default=0)
    parser.add_argument("--openai-tokens-per-minute", type=int, default=0)
    parser.add_argument("--openai-guess-tokens", action="store_true", help="four letters a token: faster")
    parser.add_argument("--openai-ledger", type=Path, help="append a line for each text sold")
    parser.add_argument("--llamaparse-port", type=int)
    parser.add_argument("--llamaparse-key", default=llamaparse.KEY)
    parser.add_argument("--llamaparse-delay", type=float, default=0.5, help="seconds a parse")
    parser.add_argument("--llamaparse-ledger", type=Path, help="append a line for each parse sold")
    parser.add_argument("--contract", choices=("lc", "002"), default="lc", help="whose callbacks")
    parser.add_argument("--standard-secret", default="", help="whsec_..., for a submit that names none")
    parser.add_argument("--p-lost", type=float, default=0.0, help="of the callbacks")
    parser.add_argument("--p-doubled", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backoff-factor", type=float, default=1.0)
    parser.add_argument("--bedrock-port", type=int)
    parser.add_argument("--bedrock-delay", type=float, default=0.0, help="seconds a call")
    parser.add_argument("--bedrock-ledger", type=Path, help="append a line for each text sold")
    parser.add_argument("--s3-port", type=int, help="SQS answers there too")
    parser.add_argument("--s3-strict", action="store_true", help="ministack instead of moto")
    return parser.parse_args()


def _servers(options: argparse.Namespace) -> list[Server]:
    servers: list[Server] = []
    if options.openai_port is not None:
        servers.append(
            OpenAIServer(
                port=options.openai_port, key=options.openai_key, delay=options.openai_delay,
                requests_per_minute=options.openai_requests_per_minute,
                tokens_per_minute=options.openai_tokens_per_minute,
                exact_tokens=not options.openai_guess_tokens, ledger=Ledger(options.openai_ledger),
            )
        )  # fmt: skip
    if options.llamaparse_port is not None:
        servers.append(
            LlamaParseServer(
                port=options.llamaparse_port, key=options.llamaparse_key, delay=options.llamaparse_delay,
                contract=options.contract, standard_secret=options.standard_secret,
                p_lost=options.p_lost, p_doubled=options.p_doubled, seed=options.seed,
                backoff_factor=options.backoff_factor, ledger=Ledger(options.llamaparse_ledger),
            )
        )  # fmt: skip
    if options.bedrock_port is not None:
        servers.append(
            BedrockServer(port=options.bedrock_port, delay=options.bedrock_delay, ledger=Ledger(options.bedrock_ledger))
        )
    if options.s3_port is not None:
        servers.append(S3Server(port=options.s3_port, strict=options.s3_strict))
    return servers


def _server_info(server: Server) -> dict[str, str]:
    info = {"url": server.url, "control": f"http://127.0.0.1:{server.port}/control"}
    if isinstance(server, S3Server):
        return info | {"access_key": server.access_key, "secret_key": server.secret_key, "region": server.region}
    if isinstance(server, BedrockServer):
        return info | {"access_key": bedrock.ACCESS_KEY, "secret_key": bedrock.SECRET_KEY, "region": bedrock.REGION}
    if isinstance(server, LlamaParseServer | OpenAIServer):
        return info | {"key": server.key}
    return info


def _write(file: Path, line: str) -> None:
    """All of it or nothing: whoever waits for the file reads whole addresses."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(f"{line}\n")
    part.replace(file)


if __name__ == "__main__":
    main()
