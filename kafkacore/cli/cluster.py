"""`kafkacore cluster`: the brokers, and which of them takes the controller's requests."""

from __future__ import annotations

from rich.table import Table

from kafkacore.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Settings, admin_client, print_json
from kafkacore.cli.terminal import console


def cluster(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, setting: Settings = None, json: Json = False) -> None:
    """Show the cluster's id and its brokers."""
    with admin_client(bootstrap_server, setting) as admin:
        found = admin.describe_cluster()
    controller = None if found.controller is None else found.controller.id
    if json:
        nodes = [node._asdict() for node in found.nodes]
        print_json({"cluster_id": found.cluster_id, "controller": controller, "brokers": nodes})
        return
    table = Table("broker", "host", "port", "rack", "controller", title=f"cluster {found.cluster_id}", title_justify="left")
    for node in found.nodes:
        table.add_row(str(node.id), node.host, str(node.port), node.rack or "-", "yes" if node.id == controller else "")
    console.print(table)
