"""EmbeddedCluster: real brokers on loopback, in this process or in processes of their own, and their controller."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafkacore.broker.cluster import FEATURES, Acl, ClusterImage
from kafkacore.broker.controller.acls import MAX_RECORDS, creation_of, filter_of
from kafkacore.broker.controller.host import ControllerHost
from kafkacore.broker.controller.log import METADATA_TOPIC
from kafkacore.broker.controller.server import ControllerServer
from kafkacore.broker.emulation import NEWEST, capped, emulation
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.limits import log_memory_bytes, raise_descriptor_limit
from kafkacore.broker.server import Control
from kafkacore.config import BrokerConfig
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.config_broker_start import read_properties
from kafkacore.config_broker_tls import TLS_PROTOCOLS, broker_contexts, client_stores, gathered, tls_of
from kafkacore.config_listeners import (
    LOOPBACK,
    Listener,
    hosts_in,
    inter_broker,
    is_everywhere,
    listeners_of,
    protocols_in,
    shifted,
    written,
)
from kafkacore.config_security import sasl_listener
from kafkacore.config_text import SettingValue, setting_texts
from kafkacore.errors import Code, ConfigError, IllegalStateError, UsageError, raise_for
from kafkacore.plurals import counted
from kafkacore.protocol import (
    APIS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatableTopic,
    CreatableTopicConfig,
    CreateAclsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FetchRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kafkacore.protocol.schema import Request, Response
from kafkacore.testing.certificates import Certificates, full_name
from kafkacore.testing.kept_ports import KeptPorts
from kafkacore.testing.members import FaultyMember, ProcessMember, ThreadMember
from kafkacore.testing.network import CONTROLLER, Network

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord
    from kafkacore.types import RecordMetadata

_DEFAULT_REPLICAS = 3
_FIRST_FETCH_WITH_DIVERGENCE = 12
_NOT_STARTED = "not started: use with, or start()"
_STARTED = "started"
_CLOSED = "closed: a cluster serves within its with block, or from start() to close()"

T = TypeVar("T")


def _either(**named: Any) -> Any:
    """The value of one argument that has two names."""
    (one, first), (other, second) = named.items()
    if first is not None and second is not None:
        raise UsageError(f"{one} and {other} are two names of one argument: give it once")
    return second if first is None else first


def _with_users(config: BrokerConfig | Mapping[str, Any] | None, users: Mapping[str, str]) -> BrokerConfig | dict[str, Any]:
    """The same configuration, whatever its kind, with the listener of these users."""
    listener = {name.replace(".", "_"): value for name, value in sasl_listener(users).items()}
    has_own = config.listeners is not None if isinstance(config, BrokerConfig) else bool((config or {}).get("listeners"))
    if has_own:
        del listener["security_inter_broker_protocol"]  # the map of protocols says it
    named = {"security_inter_broker_protocol": config.security_inter_broker_protocol} if isinstance(config, BrokerConfig) else config or {}
    for name, value in named.items():
        if name.replace(".", "_") == "sasl_jaas_config" or (name.replace(".", "_") in listener and value != "PLAINTEXT"):
            raise UsageError(f"who is let in is said twice: by users, and by {name.replace('_', '.')} in config")
    if isinstance(config, BrokerConfig):
        return config.replace(**listener)
    return {**{name: value for name, value in named.items() if name.replace(".", "_") not in listener}, **listener}


def _with_super_users(
    config: BrokerConfig | Mapping[str, Any] | None, users: Mapping[str, str] | None, super_users: Sequence[str], mutual: bool
) -> BrokerConfig | dict[str, Any]:
    """The same configuration with an authorizer, for which the brokers themselves are super users, too."""
    by_certificate = users is None and mutual
    if not by_certificate and users is None:
        raise UsageError('super_users needs users={"name": "password"} or tls="mutual": else every client is User:ANONYMOUS')
    if not by_certificate and (unknown := [name for name in super_users if name not in (users or {})]):
        advice = '; leave out "User:"' if unknown[0].startswith("User:") else ""
        raise UsageError(f"super_users are some of the users {', '.join(map(repr, users or {}))}, not {unknown[0]!r}{advice}")
    names = [full_name(name) if by_certificate else name for name in dict.fromkeys(["broker", *super_users])]
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": ";".join(f"User:{name}" for name in names)}
    if isinstance(config, BrokerConfig):
        return config.replace(**settings)
    return {**(config or {}), **settings}


def _with_tls(config: BrokerConfig | Mapping[str, Any] | None, certificates: Certificates, mutual: bool) -> BrokerConfig | dict[str, Any]:
    """The same configuration with these certificates and, unless it has listeners of its own, with a listener that uses them."""
    changes: dict[str, Any] = dict(certificates.settings)
    has_own = config.listeners is not None if isinstance(config, BrokerConfig) else bool((config or {}).get("listeners"))
    named: dict[str, Any] = {"security_inter_broker_protocol": "PLAINTEXT"}
    if isinstance(config, BrokerConfig):
        named = {name: getattr(config, name) for name in config.given}
    elif config:
        named |= {name.replace(".", "_"): value for name, value in config.items()}
    if twice := [name for name in named if name in changes or name.startswith(("ssl_key", "ssl_truststore"))]:
        raise UsageError(f"certificates are said twice: by tls, and by {twice[0].replace('_', '.')} in config")
    protocol = str(named.get("security_inter_broker_protocol", "PLAINTEXT"))
    if not has_own and protocol not in TLS_PROTOCOLS:
        changes["security_inter_broker_protocol"] = "SASL_SSL" if protocol.startswith("SASL_") else "SSL"
    if mutual:
        only = str(changes.get("security_inter_broker_protocol", protocol))
        protocols = protocols_in(named) if has_own else {only: only}
        if "SSL" in protocols.values():
            changes["ssl_client_auth"] = "required"
        changes |= {f"listener_name_{name.lower()}_ssl_client_auth": "required" for name, each in protocols.items() if each == "SASL_SSL"}
    if isinstance(config, BrokerConfig):
        return config.replace(**gathered(changes))
    return {**{name: value for name, value in (config or {}).items() if name.replace(".", "_") not in changes}, **changes}


def _with_listeners(config: BrokerConfig, host: str, advertised_host: str | None, port: int) -> BrokerConfig:
    """Settings that say where the first broker listens."""
    if config.listeners is not None:
        if host != LOOPBACK or advertised_host is not None or port:
            raise UsageError("host, advertised_host and port say what listeners in config says, too: leave one of them out")
        return config
    if advertised_host is None:
        if is_everywhere(host):
            shown = host or "an empty host"
            raise UsageError(f"{shown} is every address of this machine: advertised_host has to name the one that clients reach")
        return config.replace(listeners=written([Listener(config.security_inter_broker_protocol, host, port)])[0])
    protocol = config.security_inter_broker_protocol
    listeners = [Listener(protocol, host, port, protocol, advertised_host), Listener("INTERNAL", LOOPBACK, 0)]
    bound, told = written(listeners)
    return config.replace(
        listeners=bound,
        advertised_listeners=told[:1],
        listener_security_protocol_map=(f"{protocol}:{protocol}", f"INTERNAL:{protocol}"),
        inter_broker_listener_name="INTERNAL",
        security_inter_broker_protocol="PLAINTEXT",  # says nothing beside the name
    )


def _check_ports(config: BrokerConfig, brokers: int) -> None:
    """Brokers' ports follow the first one's: two listeners of two brokers must not meet.

    Raises:
        ConfigError: they do, or go beyond the last port.
    """
    taken: dict[tuple[str, int], str] = {}
    for nth in range(brokers):
        moved = config.replace(**shifted(config, nth))
        for each in listeners_of(moved):
            here = f"{each.name} of broker {nth + config.node_id}"
            if each.port and (before := taken.setdefault((each.host, each.port), here)) is not here:
                rule = "the ports of further brokers follow the first one's"
                raise ConfigError(f"listeners: {before} and {here} have the same port {each.port}; {rule}")


def _api_key(api: int | str) -> int:
    """The number of an API named by its number or its name; case does not count."""
    if isinstance(api, int):
        return api
    keys = {each.name: key for key, each in APIS.items()}
    folded = {name.lower(): name for name in keys}
    if (exact := folded.get(str(api).lower())) is not None:
        return keys[exact]
    nearest = difflib.get_close_matches(str(api).lower(), folded, n=1)
    hint = f"; did you mean {folded[nearest[0]]!r}?" if nearest else ""
    raise UsageError(f"{api!r} is no API: Kafka's name of one (such as 'Fetch') or its number (1) is wanted{hint}")


class _Condition(NamedTuple):
    """Which brokers run, which of them hang, the control functions of each by number of the API, and the ACLs."""

    running: set[int]
    hanging: set[int]
    controls: dict[int, dict[int, Control]]
    acls: frozenset[Acl] = frozenset()


class BrokerLife(NamedTuple):
    """A broker's process.

    Attributes:
        pid: its number.
        end: a descriptor that becomes readable when it ends.
    """

    pid: int
    end: int


class EmbeddedCluster:
    """Brokers on loopback for the life of a `with` block (or from `start` to `close`)."""

    def __init__(
        self,
        brokers: int = 1,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | BrokerConfig | str | os.PathLike[str] | None = None,
        *,
        configs: Mapping[str, Any] | BrokerConfig | str | os.PathLike[str] | None = None,
        users: Mapping[str, str] | None = None,
        super_users: Sequence[str] | None = None,
        tls: bool | str = False,
        host: str = LOOPBACK,
        advertised_host: str | None = None,
        port: int = 0,
        api_versions: Mapping[int, tuple[int, int]] = API_VERSIONS,
        features: Mapping[str, int] | None = None,
        emulate: str | None = None,
        racks: Sequence[str] | None = None,
        processes: bool = False,
        faults: bool = False,
    ) -> None:
        """Prepares a cluster.

        Args:
            brokers: how many; their ids are 1, 2, ..., or begin with node.id of config
            data_dir: None keeps the logs in memory. In a directory they have Kafka's file format, one `broker-<id>` each and one
                `controller`, and the cluster goes on where it stopped.
            config, configs: Kafka's broker settings, under dotted or snake names, or the path of a file with them, as Kafka's
                server.properties; the two are one argument under two names. Without default.replication.factor topics get a replica on
                every broker, up to three.
            users: passwords by name: the brokers let in only these, by SASL_PLAINTEXT with PLAIN or SCRAM. OAUTHBEARER admits anyone with
                an unsigned token, and only if `sasl.enabled.mechanisms` in config names it. Nothing else in config may say who is let in.
            super_users: those of the users that may do everything, or without users and with tls="mutual" those of the names in clients'
                certificates. The others may do what ACLs allow, by the rules of Kafka's StandardAuthorizer; none of them anything before an
                ACL is made. An empty list makes ACLs count, too, but then no user may make one.
            tls: the brokers' listener is SSL, or with users SASL_SSL, with a certificate of an authority that is made for this cluster
                (by the package trustme); "mutual": clients must show a certificate of it, too. `client_settings` has what clients need.
                Where config has listeners, those of them that are SSL or SASL_SSL use it.
            host: the address that the brokers listen on: "127.0.0.1", "::1", that of a network, or "0.0.0.0" for every one of the machine.
                Beyond loopback a warning says what that means.
            advertised_host: the name or address that clients are given and connect to, where it is another one than host. Brokers and
                the calls of this object then use a listener of their own on loopback, INTERNAL.
            port: of the first broker, the others follow it; 0 lets the system choose. Kafka's settings listeners, advertised.listeners,
                listener.security.protocol.map and inter.broker.listener.name in config say all of that instead; their ports are those of
                the first broker, too.
            api_versions: what the brokers advertise, (min, max) by API key, to play an older Kafka; at most what is served.
            features: levels of Kafka's features, by name, where they are not the highest: {"transaction.version": 1}.
            emulate: play an older Kafka. "3.9", "4.0" or "4.3": no newer versions of APIs, no features or levels of them that it did not
                have; its oldest versions, which Kafka 4 dropped, do not come back. "0.8" (0.8.2), "0.9" (0.9.0), "0.10" (0.10.2) or "2.x"
                (2.8): the whole table of that release, its message format in the logs, and its errors; up to 0.9 no ApiVersions.
            racks: broker.rack of each broker.
            processes: each broker is a process of its own, which `kill_broker` ends by SIGKILL; the controller stays in this one. The logs
                are on disk, without a data_dir in a directory that `close` removes. Functions given to `control` run in this process all
                the same. `network` does not work then.
            faults: `network` and `jump_clock` work; every byte then passes through a thread of its own, and the brokers reach the
                controller over connections.

        Raises:
            UsageError: no broker, config beside configs, racks for other brokers, users beside settings that say who is let in, super_users
                who are no users, a Fetch too old for several brokers to copy with, a data_dir that is in use, or api_versions or features
                that are not served, or not by the release that is played.
            KafkaStorage: the data_dir cannot be used.
            ConfigError: a setting is unknown or wrong.
        """
        config = _either(config=config, configs=configs)
        if isinstance(config, (str, os.PathLike)):
            config = read_properties(config)
        self._life = _NOT_STARTED
        if brokers < 1:
            raise UsageError(f"a cluster has at least one broker, not {brokers}")
        if racks is not None and len(racks) != brokers:
            raise UsageError(f"{len(racks)} racks are named for {brokers} brokers")
        if emulate is not None:
            api_versions = capped(api_versions, emulate)
            features = {**emulation(emulate).features, **(features or {})}
        if tls not in (False, True, "mutual"):
            raise UsageError(f'tls is True or "mutual", not {tls!r}')
        supported_features = FEATURES if emulate is None else emulation(emulate).supported_features
        speaks_old = emulate is not None and emulation(emulate).versions is not None  # its brokers copy as today's do all the same
        if brokers > 1 and not speaks_old and api_versions.get(FetchRequest.API_KEY, (0, 0))[1] < _FIRST_FETCH_WITH_DIVERGENCE:
            raise UsageError(f"several brokers copy with Fetch v{_FIRST_FETCH_WITH_DIVERGENCE} or newer; api_versions ends before it")
        if users is not None:
            config = _with_users(config, users)
        self._users = users
        self._certificates: Certificates | None = None
        if tls:
            named = {name: getattr(config, name) for name in config.names()} if isinstance(config, BrokerConfig) else config or {}
            hosts = ["localhost", LOOPBACK, "::1", *(each for each in (host, advertised_host or "") if not is_everywhere(each))]
            self._certificates = Certificates([*dict.fromkeys([*hosts, *hosts_in(named)])])
            config = _with_tls(config, self._certificates, tls == "mutual")
        if super_users is not None:
            config = _with_super_users(config, users, super_users, tls == "mutual")
        self.config = config if isinstance(config, BrokerConfig) else _config(brokers, config)
        if host != LOOPBACK or advertised_host is not None or self.config.listeners is not None:
            self.config = _with_listeners(self.config, host, advertised_host, port)
            _check_ports(self.config, brokers)
        if processes:
            broker_contexts(self.config, listeners_of(self.config))  # else only the log of a process would say that a file is wrong
        if self.config.log_memory_max_bytes < 0:
            self.config = self.config.replace(log_memory_max_bytes=log_memory_bytes(self.config) // brokers)
        self._temporary = tempfile.TemporaryDirectory(prefix="kafkacore-") if processes and data_dir is None else None
        directory = Path(self._temporary.name) if self._temporary is not None else None if data_dir is None else Path(data_dir)
        if directory is not None and (directory / f"{METADATA_TOPIC}-0").is_dir():
            layout = f"move {METADATA_TOPIC}-0 to controller/, with a copy of meta.properties, and the rest to broker-1/"
            raise UsageError(f"data_dir {directory} is the log directory of a Kafka: {layout}")
        self._controller = ControllerHost(
            self.config,
            directory=None if directory is None else directory / "controller",
            features=features,
            supported_features=supported_features,
            has_log=faults,
        )
        # Brokers whose connections can break reach the controller over one, too: as in Kafka only the end of their session fences them.
        self._server = ControllerServer(self._controller, fences_disconnected=processes) if processes or faults else None
        self._hanging: set[int] = set()
        self.on_halt: Callable[[int], None] = lambda broker: None
        """Called in a broker's thread, with its id, when it stops by itself: it was alone, and its disk has failed."""
        self._kept_ports = KeptPorts()
        self._faults = faults
        ids = range(self.config.node_id, self.config.node_id + brokers)
        self._network = Network([*ids]) if faults and not processes else None

        def member(node_id: int) -> ThreadMember | ProcessMember:
            nth = ids.index(node_id)
            own = {**shifted(self.config, nth), **({} if racks is None else {"broker_rack": racks[nth]})}
            settings = self.config.replace(**own) if own else self.config
            own_port = port + nth if port else 0
            log_dirs = None if directory is None else [directory / f"broker-{node_id}"]
            options: dict[str, Any] = {
                "port": own_port,
                "log_dirs": log_dirs,
                "api_versions": api_versions,
                "supported_features": supported_features,
                "emulate": NEWEST if emulate is None else emulate,
            }
            if processes:
                return ProcessMember(self._controller, settings, node_id, jumping_clock=faults, **options)
            if self._network is not None:
                return FaultyMember(self._controller, self._network, settings, node_id, **options)
            made = ThreadMember(settings, node_id, self._controller, **options)
            made.on_halt = lambda: self.on_halt(node_id)
            return made

        self._brokers = {node_id: member(node_id) for node_id in ids}

    def start(self) -> EmbeddedCluster:
        """Starts all brokers. The process's soft limit of file descriptors becomes the hard one: every partition on disk keeps a file open.

        Returns:
            Itself.
        """
        raise_descriptor_limit()
        try:
            self._life = _STARTED
            self._controller.open()
            if self._server is not None:
                self._server.start()
                address = self._server.broker_address
                for broker in self._brokers.values():
                    broker.set_controller(address)
                if self._network is not None:
                    self._network.listens(CONTROLLER, self._server.port)
            for broker in self._brokers.values():
                broker.start()
            for broker in self._brokers.values():
                broker.ready()
            self._settle()
        except BaseException as error:
            for failure in self._close_all():
                error.add_note(f"closing the cluster failed too: {type(failure).__name__}: {failure}")
            raise
        return self

    def close(self) -> None:
        """Stops all brokers; data in memory ends with this object. May be called twice.

        Raises:
            KafkaTimeoutError: a broker did not stop; everything else is closed all the same.
            ExceptionGroup: several things failed.
        """
        failures = self._close_all()
        interrupt = next((each for each in failures if not isinstance(each, Exception)), None)
        if interrupt is not None:
            raise interrupt
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise BaseExceptionGroup("several parts of the cluster could not be closed", failures)

    def _close_all(self) -> list[BaseException]:
        """Closes every part, whatever becomes of the others; what failed."""
        if self._life is _STARTED:
            self._life = _CLOSED
        steps: list[Callable[[], object]] = [broker.begin_to_stop for broker in self._brokers.values()]
        steps += [broker.stop for broker in self._brokers.values()]
        if self._network is not None:
            steps.append(self._network.close)
        if self._server is not None:
            steps.append(self._server.stop)
        steps += [self._controller.close, self._kept_ports.close]
        if self._temporary is not None:
            steps.append(self._temporary.cleanup)
        if self._certificates is not None:
            steps.append(self._certificates.close)
        failures: list[BaseException] = []
        for step in steps:
            try:
                step()
            except BaseException as error:
                failures.append(error)
        return failures

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._life is _STARTED else self._life.partition(":")[0]
        return f"<EmbeddedCluster, {counted(len(self._brokers), 'broker')}: {where}>"

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, with commas, of its first listener; of stopped ones too, since they come back there.

        Raises:
            IllegalStateError: the cluster is not started, or it is closed; so do all calls that need its brokers.
        """
        self._check_started()
        return ",".join(broker.address for broker in self._brokers.values())

    def listener(self, name: str) -> str:
        """The addresses that clients of a listener are given, as `bootstrap_servers` has those of the first.

        Args:
            name: as the setting listeners has it.

        Raises:
            UsageError: there is no such listener.
        """
        self._check_started()
        every = [[each for each in broker.listeners if each.name == name.upper()] for broker in self._brokers.values()]
        if not every[0]:
            names = ", ".join(each.name for each in self._brokers[self.config.node_id].listeners)
            raise UsageError(f"there is no listener {name!r}; there are {names}")
        return ",".join(found.address for (found,) in every)

    @property
    def cluster_id(self) -> str:
        """The id clients see."""
        return self._controller.cluster_id

    def processes(self) -> dict[int, BrokerLife]:
        """The processes of brokers that run as such, by broker; empty without `processes=True`."""
        return {
            node_id: BrokerLife(broker.pid, broker.life)
            for node_id, broker in self._brokers.items()
            if isinstance(broker, ProcessMember) and broker.pid is not None and broker.life >= 0
        }

    def _check_started(self) -> None:
        if self._life is not _STARTED:
            raise IllegalStateError(self._life)

    def _broker(self, broker: int) -> ThreadMember | ProcessMember:
        self._check_started()
        found = self._brokers.get(broker)
        if found is None:
            raise UsageError(f"there is no broker {broker}; there are {sorted(self._brokers)}")
        return found

    def _submit(self, request: Request) -> Response:
        """Has the controller carry out a request, and waits until every broker that serves knows the result."""
        self._check_started()
        response, _ = self._controller.submit(request, request.MAX_VERSION)
        self._settle()
        return response

    def _settle(self) -> None:
        """Waits until every broker that serves knows what the controller has decided."""
        for node_id, broker in self._brokers.items():
            if broker.running and node_id not in self._hanging:
                broker.settle()

    def _read(self, fn: Callable[[ClusterImage], T]) -> T:
        """What the controller's image says."""
        self._check_started()
        return self._controller.read(fn)

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, SettingValue] | None = None,
        *,
        config: Mapping[str, SettingValue] | None = None,
    ) -> None:
        """Creates a topic.

        Args:
            name: its name.
            partitions: -1 for num.partitions.
            replication_factor: -1 for default.replication.factor.
            configs, config: topic settings by Kafka's names, one argument under two names; values are texts, numbers, truth values and
                lists of texts.

        Raises:
            BrokerError: as a broker would refuse it (`TopicExists`, `InvalidTopic`, ...).
            UsageError: config beside configs, or a value that is nothing of this.
        """
        settings = setting_texts(_either(config=config, configs=configs))
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        response = self._submit(CreateTopicsRequest(topics=[topic]))
        assert isinstance(response, CreateTopicsResponse)
        raise_for(response.topics[0].error_code, response.topics[0].error_message, topic=name)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic.

        Raises:
            UnknownTopicOrPartition: no topic has that name.
        """
        response = self._submit(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        assert isinstance(response, DeleteTopicsResponse)
        raise_for(response.responses[0].error_code, response.responses[0].error_message, topic=name)

    def topics(self) -> dict[str, int]:
        """The topics and how many partitions each has."""
        return self._read(lambda image: {name: len(topic.partitions) for name, topic in image.topics.items()})

    def produce(self, /, topic: str, records: Iterable[Any], **settings: Any) -> list[RecordMetadata]:
        """Writes records and waits until all are acknowledged.

        Args:
            topic: where to; created if it is missing, as for any producer.
            records: values, (key, value) pairs, or each a `ProducerRecord` of this topic.
            **settings: of the producer, as value_serializer.

        Returns:
            Where each record went, in the order given.

        Raises:
            UsageError: a record is nothing of this.
            KafkaError: as `KafkaProducer` fails.
        """
        client = self._client()
        from kafkacore.testing import records as calls

        return calls.produce(client, topic, records, settings)

    def records(self, /, topic: str, timeout: float = 30, **settings: Any) -> list[ConsumerRecord]:
        """All records of a topic, from its beginning to its end at the time of the call.

        Args:
            topic: what to read.
            timeout: seconds.
            **settings: of the consumer, as value_deserializer or isolation_level.

        Returns:
            The records in the order of their partitions and offsets.

        Raises:
            UnknownTopicOrPartition: there is no such topic; it is not created.
            KafkaTimeoutError: the end was not reached in time.
        """
        client = self._client()
        from kafkacore.testing import records as calls

        return calls.records(client, topic, timeout, settings)

    def client_settings(self, user: str | None = None, *, listener: str | None = None) -> dict[str, Any]:
        """Settings of clients: `KafkaProducer(**cluster.client_settings("alice"))`.

        Args:
            user: one of users, for a listener that asks for one; with tls="mutual" also the CN of a certificate that is made for it,
                CN=USER,OU=test,O=kafkacore. May be left out where there is one user.
            listener: which they come in by; the first if left out.

        Returns:
            bootstrap_servers, security_protocol and what that needs: ssl_cafile, ssl_certfile and ssl_keyfile, which are paths of PEM files
            that `close` removes; sasl_mechanism, sasl_username and sasl_password.

        Raises:
            UsageError: there is no such user or listener.
        """
        self._check_started()
        servers = self.bootstrap_servers if listener is None else self.listener(listener)
        first = next(each for each in listeners_of(self.config) if listener is None or each.name == listener.upper())
        settings: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": first.protocol}
        if first.protocol.startswith("SASL_"):
            known = self.config.plain_users()[2] if self._users is None else self._users
            if user is None and len(known) == 1:
                user = next(iter(known))
            if user is None or user not in known:
                raise UsageError(f"client_settings is for one of the users {', '.join(map(repr, known))}, not {user!r}")
            settings |= {"sasl_mechanism": "PLAIN", "sasl_username": user, "sasl_password": known[user]}
        if first.protocol in TLS_PROTOCOLS:
            if self._certificates is None:
                settings |= client_stores(self.config, first)
            else:
                settings["ssl_cafile"] = self._certificates.ca
                if tls_of(self.config, first).server.client_auth != "none":
                    settings["ssl_certfile"], settings["ssl_keyfile"] = self._certificates.of_user(user or "client")
        return settings

    def _client(self) -> dict[str, Any]:
        """Settings of a client of this process, as a user whom every broker knows."""
        self._check_started()
        own = inter_broker(self.config, listeners_of(self.config))
        servers = self.bootstrap_servers if self.config.listeners is None else self.listener(own.name)
        settings = {"bootstrap_servers": servers, "security_protocol": own.protocol}
        if own.protocol.startswith("SASL_"):
            user, password, _ = self.config.plain_users()
            settings |= {"sasl_mechanism": "PLAIN", "sasl_username": user, "sasl_password": password}
        if own.protocol in TLS_PROTOCOLS:
            settings |= client_stores(self.config, own)
        return settings

    def stop_broker(self, broker: int) -> None:
        """Has others take over what a broker leads, then closes its port and connections; its data stays."""
        self._stop(self._broker(broker))
        self._settle()

    def kill_broker(self, broker: int) -> None:
        """Ends a broker as suddenly as can be, a process by SIGKILL: without a word to others, no log is closed properly."""
        self._stop(self._broker(broker), clean=False)
        self._settle()

    def _stop(self, member: ThreadMember | ProcessMember, clean: bool = True) -> None:
        member.stop(clean)
        self._hanging.discard(member.node_id)
        self._kept_ports.keep(member.node_id, member.listeners)

    def start_broker(self, broker: int) -> None:
        """Starts a stopped broker on its old port."""
        member = self._broker(broker)
        member.start()
        member.ready()
        self._kept_ports.release(broker)
        self._settle()

    def pause_broker(self, broker: int) -> None:
        """Lets a broker hang: connections stay open, nothing is answered."""
        self._broker(broker).pause()
        self._hanging.add(broker)

    def resume_broker(self, broker: int) -> None:
        """Ends `pause_broker`; what was sent in the meantime is served."""
        self._broker(broker).resume()
        self._hanging.discard(broker)

    def _condition(self) -> _Condition:
        """What a test may change of its brokers, for `_return_to`."""
        running = {node_id for node_id, broker in self._brokers.items() if broker.running}
        controls = {node_id: dict(broker.controls) for node_id, broker in self._brokers.items()}
        return _Condition(running, set(self._hanging), controls, self._read(lambda image: frozenset(image.acl_ids)))

    def _return_to(self, condition: _Condition) -> None:
        """Starts brokers that have been stopped since, resumes the paused ones, takes control functions back, heals the network; the ACLs
        are those of then.

        Args:
            condition: of this cluster, earlier.
        """
        self._check_started()
        for node_id in self._hanging - condition.hanging:
            self.resume_broker(node_id)
        for node_id, broker in self._brokers.items():
            if node_id in condition.running and not broker.running:
                self.start_broker(node_id)
            before, now = condition.controls[node_id], dict(broker.controls)
            for key in before.keys() | now.keys():
                if before.get(key) is not now.get(key):
                    broker.control(key, before.get(key))
        if self._network is not None:
            self._network.heal()
        acls = self._read(lambda image: frozenset(image.acl_ids))
        added, removed = [filter_of(each) for each in acls - condition.acls], [creation_of(each) for each in condition.acls - acls]
        for start in range(0, len(added), MAX_RECORDS):
            self._submit(DeleteAclsRequest(filters=added[start : start + MAX_RECORDS]))
        for start in range(0, len(removed), MAX_RECORDS):
            self._submit(CreateAclsRequest(creations=removed[start : start + MAX_RECORDS]))

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Makes another in-sync replica the leader of a partition, and the preferred one.

        Args:
            topic, partition: the partition.
            broker: the new leader.

        Raises:
            UsageError: there is no such broker, or it holds no replica.
            BrokerError: it cannot lead: `PreferredLeaderNotAvailable` if it is not in sync.
        """
        self._broker(broker)
        replicas = self._read(lambda image: list(image.partition(topic, partition).replicas))
        if broker not in replicas:
            raise UsageError(f"move_leader: broker {broker} holds no replica of partition {partition} of {topic!r}; {replicas} do")
        ordered = [broker, *(node for node in replicas if node != broker)]
        wanted = ReassignablePartition(partition_index=partition, replicas=ordered)
        reassigned = self._submit(
            AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[wanted])], timeout_ms=0)
        )
        assert isinstance(reassigned, AlterPartitionReassignmentsResponse)
        raise_for(reassigned.error_code, reassigned.error_message)
        moved = reassigned.responses[0].partitions[0]
        raise_for(moved.error_code, moved.error_message, topic=topic, partition=partition)
        election = ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])], timeout_ms=0
        )
        elected = self._submit(election)
        assert isinstance(elected, ElectLeadersResponse)
        for result in (each for group in elected.replica_election_results for each in group.partition_result):
            if result.error_code != Code.ELECTION_NOT_NEEDED:
                raise_for(result.error_code, result.error_message, topic=topic, partition=partition)

    def control(self, api: int | str, fn: Control | None) -> None:
        """Puts a function before an API on every broker.

        Args:
            api: the API by Kafka's name or number: `"Fetch"` or 1, `"EndTxn"` or 26.
            fn: `fn(request)` runs in the broker's thread and returns a response to send instead, `Delay`, `Drop`, `Disconnect`, or None
                for the normal way. None takes the function away. With processes=True it runs in a thread of this process, and the broker
                waits for it.

        Raises:
            UsageError: there is no such API, it is not served, or `fn` is no function.
        """
        key = _api_key(api)
        if fn is not None and not callable(fn):
            raise UsageError(f"control takes a function of the request, as `lambda request: {fn!r}`, not {fn!r}")
        for broker in self._brokers.values():
            broker.control(key, fn)

    @property
    def network(self) -> Network:
        """The network of the cluster, for faults.

        Raises:
            UsageError: the cluster was made without faults=True, or its brokers are processes.
        """
        if self._faults and self._network is None:
            raise UsageError(
                "network: brokers that are processes of their own hold their sockets themselves, out of reach of the relay, which is a"
                " thread of this process; it needs processes=False"
            )
        if self._network is None:
            raise UsageError("EmbeddedCluster(faults=True) has a network that can have faults; this one was made without")
        return self._network

    def jump_clock(self, broker: int, ms: int, asleep: bool = False) -> None:
        """Sets a broker's clock wrong.

        Args:
            broker: whose.
            ms: by how much; back if negative.
            asleep: its monotonic time goes on too, as if it had not run for so long.

        Raises:
            UsageError: the cluster was made without faults=True, or there is no such broker.
            ValueError: the time is negative.
        """
        member = self._broker(broker)
        if not self._faults:
            raise UsageError("EmbeddedCluster(faults=True) has clocks that jump; this one was made without")
        if asleep and ms < 0:
            raise ValueError(f"cannot sleep for {ms} ms")
        member.jump_clock(ms, asleep)

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader's id; None without one."""
        leader = self._read(lambda image: image.partition(topic, partition).leader)
        return leader if leader >= 0 else None

    def isr(self, topic: str, partition: int) -> list[int]:
        """The ids of the in-sync replicas."""
        return self._read(lambda image: list(image.partition(topic, partition).isr))

    def high_watermark(self, topic: str, partition: int, broker: int | None = None) -> int:
        """The offset below which records are on all in-sync replicas.

        Args:
            topic, partition: the partition.
            broker: as this one knows it; the leader if left out, or without one an in-sync replica.
        """
        registration = self._read(lambda image: image.partition(topic, partition))
        asked = broker if broker is not None else registration.leader if registration.leader >= 0 else registration.isr[0]
        return self._broker(asked).high_watermark(topic, partition)

    def end_offset(self, topic: str, partition: int, broker: int) -> int:
        """The offset after the last record that a broker holds."""
        return self._broker(broker).end_offset(topic, partition)


def _config(brokers: int, settings: Mapping[str, Any] | None) -> BrokerConfig:
    config = BrokerConfig.from_user(settings)
    if brokers == 1 or any(name.replace(".", "_") == "default_replication_factor" for name in settings or {}):
        return config
    return config.replace(default_replication_factor=min(brokers, _DEFAULT_REPLICAS))
