"""The embedded broker: a real Kafka broker for one process, in memory, on real sockets.

log.py        a partition's batches, offsets, epochs and timestamps
producers.py  idempotence: the last five batches of every producer
cluster.py    topics, brokers, leaders: the controller's image
topic_config.py  settings of topics in force
partition.py  one partition: role, epochs, high watermark, ISR, append
replicas.py   the partitions of one broker
peers.py      requests to other brokers
fetcher.py    followers copy their leaders' logs
delayed.py    fetches and writes that wait
sessions.py   incremental fetch sessions
state.py      what the handlers see of the broker, and of one request
handlers/     one function per API
server.py     Broker: the listener and its thread
"""
