"""The controller of a cluster: it alone decides who leads, who is in sync, what exists; brokers follow its log.

writer.py      Controller: request -> (records, response)
topics.py, partitions.py, brokers.py    what it decides
elections.py, placement.py              how
host.py        the log, the lock, and who is notified
link.py        how a broker of the same process talks to it
"""

from kafkacore.broker.controller.host import ControllerHost
from kafkacore.broker.controller.link import ControllerLink, LocalControllerLink
from kafkacore.broker.controller.writer import Controller

__all__ = ["Controller", "ControllerHost", "ControllerLink", "LocalControllerLink"]
