"""`kafkacore cluster`: the brokers, and which of them takes the controller's requests; or the controllers."""

from __future__ import annotations

from rich.table import Table

from kafkacore.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Controllers, Json, Settings, admin_client, print_json
from kafkacore.cli.terminal import console


def cluster(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show the cluster's id and its brokers; with --bootstrap-controller its controllers."""
    with admin_client(bootstrap_server, setting, bootstrap_controller) as admin:
        found = admin.describe_cluster()
    what, acts = ("broker", "controller") if bootstrap_controller is None else ("controller", "active")
    controller = None if found.controller is None else found.controller.id
    if json:
        nodes = [node._asdict() for node in found.nodes]
        print_json({"cluster_id": found.cluster_id, "controller": controller, what + "s": nodes})
        return
    table = Table(what, "host", "port", "rack", acts, title=f"cluster {found.cluster_id}", title_justify="left")
    for node in found.nodes:
        table.add_row(str(node.id), node.host, str(node.port), node.rack or "-", "yes" if node.id == controller else "")
    console.print(table)
