"""`kafkacore broker`: the embedded broker as a process of its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

from kafkacore.broker.emulation import EMULATIONS
from kafkacore.cli.options import Failure, Json, assignments, print_json
from kafkacore.testing import EmbeddedCluster

HOST = "127.0.0.1"
LAST_PORT = 65_535


def _check_ports(port: int, brokers: int) -> None:
    """Names the port that cannot be had before anything is started: the system's own words leave it out."""
    if port + brokers - 1 > LAST_PORT:
        raise typer.BadParameter(f"{brokers} brokers from {port} on would need ports above {LAST_PORT}", param_hint="--port")
    for each in range(port, port + brokers):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, each))
            except OSError as failed:
                raise Failure(f"{HOST}:{each}: {failed.strerror}; -p takes another port, -p 0 any that is free") from None


def _tell_of_idle_data(data_dir: Path, brokers: int) -> None:
    """Says when the directory holds data of brokers that will not run: their partitions would be without a leader, silently."""
    ids = (entry.name.removeprefix("broker-") for entry in data_dir.glob("broker-*") if entry.is_dir())
    idle = sorted(int(each) for each in ids if each.isdecimal() and int(each) > brokers)
    if idle:
        named = ", ".join(map(str, idle))
        typer.echo(f"{data_dir} also holds data of broker {named}, which --brokers {brokers} leaves out", err=True)


def _pids(cluster: EmbeddedCluster) -> dict[str, dict[int, int]]:
    lives = cluster.processes()
    return {"pids": {node_id: life.pid for node_id, life in lives.items()}} if lives else {}


def _watch(cluster: EmbeddedCluster, end: int, json: bool) -> None:
    """Returns when the command is to end; until then tells of brokers whose processes end, and starts them again when asked to."""
    lives = cluster.processes()
    members = [*lives]
    while True:
        readable, _, _ = select.select([end, *(life.end for life in lives.values())], [], [])
        for node_id in [node_id for node_id, life in lives.items() if life.end in readable]:
            pid = lives.pop(node_id).pid
            if json:
                print_json({"ended": node_id, "pid": pid})
            else:
                typer.echo(f"broker {node_id} (process {pid}) has ended; kill -HUP {os.getpid()} starts it again", err=True)
        if end not in readable:
            continue
        if os.read(end, 1) != b"s":
            return
        for node_id in members:
            if node_id not in lives:
                cluster.start_broker(node_id)
                lives[node_id] = cluster.processes()[node_id]
                if json:
                    print_json({"started": node_id, "pid": lives[node_id].pid})
                else:
                    typer.echo(f"broker {node_id} is process {lives[node_id].pid}")


def broker(
    port: Annotated[int, typer.Option("-p", "--port", min=0, max=65535, help="Port on loopback; 0 takes free ones.")] = 9092,
    brokers: Annotated[int, typer.Option("--brokers", min=1, metavar="N", help="How many; the ports of the others follow the first.")] = 1,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Keep topics and records here, in Kafka's file format; else in memory.")
    ] = None,
    processes: Annotated[bool, typer.Option("--processes", help="Each broker in a process of its own.")] = False,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A broker setting by Kafka's name; may be repeated.")
    ] = None,
    emulate: Annotated[
        str | None, typer.Option("--emulate", metavar="RELEASE", help=f"Play an older Kafka: {', '.join(EMULATIONS)}.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a broker, or a cluster of several, on loopback until Ctrl+C: for development and tests, with nothing to install.

    Without --data-dir nothing remains. With --processes any broker may be killed, and the others take over at once; SIGHUP to this process
    starts those again that have ended."""
    if emulate is not None and emulate not in EMULATIONS:
        raise typer.BadParameter(f"{emulate!r} is not one of {', '.join(EMULATIONS)}", param_hint="--emulate")
    config = assignments(setting, "--set")
    if port:
        _check_ports(port, brokers)
    if data_dir is not None:
        _tell_of_idle_data(data_dir, brokers)
    cluster = EmbeddedCluster(brokers=brokers, data_dir=data_dir, config=config, port=port, processes=processes, emulate=emulate)
    end, ring = os.pipe()  # not an Event: its lock may be held, by this very thread, when a second signal comes
    signal.signal(signal.SIGTERM, lambda *_: os.write(ring, b"e"))
    signal.signal(signal.SIGHUP, lambda *_: os.write(ring, b"s" if processes else b"e"))
    with cluster:
        if json:
            print_json({"bootstrap_servers": cluster.bootstrap_servers, **_pids(cluster)})
        else:
            where = f"data in {data_dir}" if data_dir is not None else "data in a temporary directory" if processes else "in memory"
            for node_id, life in cluster.processes().items():
                typer.echo(f"broker {node_id} is process {life.pid}")
            typer.echo(f"{'broker' if brokers == 1 else f'{brokers} brokers'} on {cluster.bootstrap_servers}, {where}; Ctrl+C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            _watch(cluster, end, json)
        if not json:
            typer.echo("broker stopped" if brokers == 1 else "brokers stopped", err=True)
