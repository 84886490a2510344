"""The consumer as a member of a group.

    membership.py   what both group protocols share: settings, identity, the change that the polling thread carries out
    coordinator.py  finding the group's coordinator, and a connection of its own to it
    classic.py      JoinGroup, SyncGroup, Heartbeat: an engine that is handed the time
    departure.py    LeaveGroup, until the coordinator has answered
    modern.py       ConsumerGroupHeartbeat (KIP-848): the same, where the broker assigns
    assignor.py     the interface of assignors, and the bytes in which members exchange subscriptions and assignments
    assignors.py    range, round robin; sticky.py: sticky, cooperative-sticky; balance.py: what they do where subscriptions differ

Rules:
1. Engines are handed `now_ms`; they never block, sleep or read a clock, and never call the application. [test_engines_read_no_clock]
2. What concerns the application (listeners, the assignment) is a `Change`: the engine says what has to change, the polling thread does it
   and reports back with `carried_out`. Until then the engine goes on with heartbeats and nothing else.
   [test_what_is_left_after_a_change_is_lost_when_the_generation_ended_during_it,
   test_fenced_while_the_polling_thread_takes_partitions_over]
3. An answer counts for the request that is still `_asked`; what a new generation, an interrupt or a leave made obsolete is ignored.
   [test_the_answer_to_a_join_that_was_given_up_says_nothing, test_leaving_before_the_join_is_answered]

Source: Kafka's ConsumerCoordinator, AbstractCoordinator, ConsumerMembershipManager.
"""
