"""Transactions: the coordinator of transactional ids, and what the leaders of partitions ask it.

    state.py        what is known of one transactional id, its transitions, its record in __transaction_state
    shard.py        the operations on it: operation -> records and response, no I/O
    markers.py      ending a transaction in its partitions: sending markers, writing them
    verify.py       leaders ask the coordinator before a transaction's first batch (KIP-890)
    coordinator.py  the coordinator of one broker: shards, timers, markers put together
"""
