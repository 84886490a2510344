"""The group coordinator: classic and KIP-848 groups, committed offsets.

    handlers -> service.GroupCoordinator -> CoordinatorRuntime -> shard.GroupShard
                                                                    membership.ClassicMembership   classic.ClassicGroup
                                                                    offsets.OffsetStore
    records.py makes and reads what lies in __consumer_offsets
"""
