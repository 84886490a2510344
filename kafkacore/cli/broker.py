"""`kafkacore broker`: the embedded broker as a process of its own."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from kafkacore.cli.options import Json, assignments, messages, print_json
from kafkacore.testing import EmbeddedCluster


def broker(
    port: Annotated[int, typer.Option("-p", "--port", min=0, max=65535, help="Port on loopback; 0 takes a free one.")] = 9092,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A broker setting by Kafka's name; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a broker in memory on loopback until Ctrl+C: for development and tests, with nothing to install or clean up."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with EmbeddedCluster(brokers=1, config=assignments(setting, "--set"), port=port) as cluster:
        if json:
            print_json({"bootstrap_servers": cluster.bootstrap_servers})
        else:
            typer.echo(f"broker on {cluster.bootstrap_servers}, in memory; Ctrl+C ends it")
        try:
            stop.wait()
        except KeyboardInterrupt:
            pass
        if not json:
            messages.print("broker stopped")
