"""The embedded broker: a real Kafka broker for one process, in memory, on real sockets.

log.py        a partition's batches, offsets, epochs and timestamps
producers.py  idempotence: the last five batches of every producer
cluster.py    topics, settings, leaders: the controller's image
replicas.py   partitions: append, read, high watermark
delayed.py    fetches that wait
sessions.py   incremental fetch sessions
state.py      what the handlers see of the broker, and of one request
handlers/     one function per API
server.py     Broker: the listener and its thread
"""
