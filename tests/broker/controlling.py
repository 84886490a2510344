"""Controllers for the broker's tests: what a test wants changed goes through the controller, as everything does."""

from kafkacore import protocol as p
from kafkacore.broker.controller import ControllerHost, LocalControllerLink
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.state import BrokerState
from kafkacore.errors import KafkaError, raise_for
from kafkacore.types import Node


def connect(host, state):
    return LocalControllerLink(host, state.node_id, state.cluster, state.timer, state.post)


def broker_state(config, clock, *, host=None, node_id=1, port=9092, log_dirs=None):
    """A broker without a thread, registered with a controller of its own unless one is given."""
    host = host or ControllerHost(config, clock=clock)
    state = BrokerState(config, node_id, host.cluster_id, lambda state: connect(host, state), API_VERSIONS, clock, log_dirs=log_dirs)
    state.controller.start(Node(node_id, "127.0.0.1", port))
    return state


def submit(link, request):
    """The controller's response to a request, which a controller in this process gives at once."""
    answers = []
    link.submit(request, request.MAX_VERSION, answers.append)
    (answer,) = answers
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def topic_request(name, partitions=1, replicas=1):
    """What asks for a topic."""
    return p.CreateTopicsRequest(topics=[p.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)])


def create_topic(link, name, num_partitions=-1, replication_factor=-1, configs=None, assignments=None, validate_only=False):
    topic = p.CreatableTopic(
        name=name,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        configs=[p.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[p.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes) for index, nodes in (assignments or {}).items()],
    )
    (result,) = submit(link, p.CreateTopicsRequest(topics=[topic], validate_only=validate_only)).topics
    raise_for(result.error_code, result.error_message, topic=name)
    return result


def create_partitions(link, name, count):
    wanted = p.CreatePartitionsTopic(name=name, count=count, assignments=None)
    (result,) = submit(link, p.CreatePartitionsRequest(topics=[wanted], timeout_ms=1000)).results
    raise_for(result.error_code, result.error_message, topic=name)


def delete_topic(link, name):
    (result,) = submit(link, p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=name)], timeout_ms=1000)).responses
    raise_for(result.error_code, result.error_message, topic=name)
