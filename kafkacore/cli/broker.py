"""`kafkacore broker`: the embedded broker as a process of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

from kafkacore.broker.emulation import EMULATIONS
from kafkacore.cli.options import Failure, JsonLines, assignments, print_json, say, without_references
from kafkacore.config import BrokerConfig
from kafkacore.config_broker_start import read_properties
from kafkacore.config_listeners import LOOPBACK, is_everywhere, joined, listeners_of
from kafkacore.config_security import PASSWORD_MECHANISMS
from kafkacore.testing import EmbeddedCluster

DEFAULT_PORT = 9092
LAST_PORT = 65_535


def _check_ports(host: str, port: int, brokers: int) -> None:
    """Names the port that cannot be had before anything is started: the system's own words leave it out."""
    if port + brokers - 1 > LAST_PORT:
        raise typer.BadParameter(f"{brokers} brokers from {port} on would need ports above {LAST_PORT}", param_hint="--port")
    for each in range(port, port + brokers) if port else (0,):
        try:
            family, kind, _, _, address = socket.getaddrinfo(host or None, each, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as failed:
            in_use = failed.errno in (errno.EADDRINUSE, errno.EACCES)
            hint = "-p takes another port, -p 0 any that is free" if in_use else "--host names an address of this machine"
            raise Failure(f"{joined(host, each)}: {failed.strerror}; {hint}") from None


def _tell_of_idle_data(data_dir: Path, cluster: range) -> None:
    """Says when the directory holds data of brokers that will not run: their partitions would be without a leader, silently."""
    ids = (entry.name.removeprefix("broker-") for entry in data_dir.glob("broker-*") if entry.is_dir())
    idle = sorted(int(each) for each in ids if each.isdecimal() and int(each) not in cluster)
    if idle:
        named = ", ".join(map(str, idle))
        say(f"{data_dir} also holds data of broker {named}, which --brokers {len(cluster)} leaves out", err=True)


def _pids(cluster: EmbeddedCluster) -> dict[str, dict[int, int]]:
    lives = cluster.processes()
    return {"pids": {node_id: life.pid for node_id, life in lives.items()}} if lives else {}


def _for_clients(cluster: EmbeddedCluster, tls: bool) -> dict[str, str]:
    """What clients of the first listener need: protocol, mechanism, where the certificates made by --tls are; no password."""
    first = listeners_of(cluster.config)[0]
    if first.protocol == "PLAINTEXT":
        return {}
    needed = {"security_protocol": first.protocol}
    users = cluster.config.plain_users()[2] if first.protocol.startswith("SASL_") else {}
    mechanism = next((each for each in cluster.config.sasl_mechanisms() if each in PASSWORD_MECHANISMS), None)
    if users and mechanism is not None:
        needed["sasl_mechanism"] = mechanism
    if tls:
        found = cluster.client_settings(next(iter(users), None))
        needed |= {name: value for name, value in found.items() if name.startswith("ssl_")}
    return needed


def _watch(cluster: EmbeddedCluster, end: int, json: bool) -> None:
    """Returns when the command is to end; until then reports brokers whose processes end, and starts them again when asked to."""
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
        why = os.read(end, 1)
        if why == b"h":
            raise Failure("the broker has stopped: all its log directories have failed")
        if why != b"s":
            return
        for node_id in members:
            if node_id not in lives:
                cluster.start_broker(node_id)
                lives[node_id] = cluster.processes()[node_id]
                if json:
                    print_json({"started": node_id, "pid": lives[node_id].pid})
                else:
                    typer.echo(f"broker {node_id} is process {lives[node_id].pid}")


def _tell(ring: int) -> None:
    os.write(ring, b"h")


def broker(
    port: Annotated[
        int | None, typer.Option("-p", "--port", min=0, max=65535, show_default=str(DEFAULT_PORT), help="Port; 0 takes free ones.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen: 127.0.0.1, ::1, an address of a network, 0.0.0.0 for all.")
    ] = LOOPBACK,
    advertised_host: Annotated[
        str | None, typer.Option("--advertised-host", metavar="NAME", help="What clients are given and connect to; --host if left out.")
    ] = None,
    brokers: Annotated[int, typer.Option("--brokers", min=1, metavar="N", help="How many; the ports of the others follow the first.")] = 1,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Keep topics and records here, in Kafka's file format; else in memory.")
    ] = None,
    processes: Annotated[bool, typer.Option("--processes", help="Each broker in a process of its own.")] = False,
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings in a file as Kafka's server.properties; --set counts more.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker setting by Kafka's name, secrets by secret://env/NAME; may be repeated."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="TLS, with a certificate made for it; --set ssl.client.auth=required asks clients for one.")
    ] = False,
    emulate: Annotated[
        str | None, typer.Option("--emulate", metavar="RELEASE", help=f"Play an older Kafka: {', '.join(EMULATIONS)}.")
    ] = None,
    json: JsonLines = False,
) -> None:
    """Run a broker, or a cluster of several, on loopback until Ctrl+C: for development and tests, with nothing to install.

    Containers, VMs and other machines reach it with --host 0.0.0.0 --advertised-host NAME, by the name under which they know this machine;
    anyone who reaches it may do everything. With --tls clients need the authority that is made; its file goes with the broker. --set
    listeners=..., advertised.listeners=... are Kafka's settings for several listeners.

    Without --data-dir nothing remains. With --processes any broker may be killed, and the others take over at once; SIGHUP to this process
    starts those again that have ended."""
    if emulate is not None and emulate not in EMULATIONS:
        raise typer.BadParameter(f"{emulate!r} is not one of {', '.join(EMULATIONS)}", param_hint="--emulate")
    given = assignments(setting, "--set")
    if config_file is not None:
        given = {**{name: value for name, value in read_properties(config_file).items() if name.replace(".", "_") not in given}, **given}
    config = without_references(given, "--set" if config_file is None else "--set or --config", BrokerConfig)
    if "listeners" not in config:
        port = DEFAULT_PORT if port is None else port
        if advertised_host is None and is_everywhere(host):
            problem = "is every address of this machine: --advertised-host has to name the one that clients reach"
            raise typer.BadParameter(f"{host or 'it'} {problem}", param_hint="--host")
        _check_ports(host, port, brokers)
    if data_dir is not None:
        first = next((config[name] for name in ("node.id", "node_id", "broker.id") if name in config), "1")
        _tell_of_idle_data(data_dir, range(int(first), int(first) + brokers) if first.isdecimal() else range(1, brokers + 1))
    cluster = EmbeddedCluster(
        brokers=brokers,
        data_dir=data_dir,
        config=config,
        host=host,
        advertised_host=advertised_host,
        port=port or 0,
        tls=tls,
        processes=processes,
        emulate=emulate,
    )
    end, ring = os.pipe()  # not an Event: its lock may be held, by this very thread, when a second signal comes
    signal.signal(signal.SIGTERM, lambda *_: os.write(ring, b"e"))
    signal.signal(signal.SIGHUP, lambda *_: os.write(ring, b"s" if processes else b"e"))
    cluster.on_halt = lambda _: _tell(ring)
    with cluster:
        if json:
            print_json({"bootstrap_servers": cluster.bootstrap_servers, **_pids(cluster), **_for_clients(cluster, tls)})
        else:
            where = f"data in {data_dir}" if data_dir is not None else "data in a temporary directory" if processes else "in memory"
            for node_id, life in cluster.processes().items():
                typer.echo(f"broker {node_id} is process {life.pid}")
            typer.echo(f"{'broker' if brokers == 1 else f'{brokers} brokers'} on {cluster.bootstrap_servers}, {where}; Ctrl+C ends it")
            if needed := _for_clients(cluster, tls):
                named = [f"-X {name.replace('_', '.')}={value}" for name, value in needed.items()]
                if "sasl_mechanism" in needed:
                    named.append("-X sasl.username=USER -X sasl.password=secret://env/NAME")
                typer.echo(f"clients need {' '.join(named)}")
        with contextlib.suppress(KeyboardInterrupt):
            _watch(cluster, end, json)
        if not json:
            typer.echo("broker stopped" if brokers == 1 else "brokers stopped", err=True)
