"""Names of aiokafka's assignors, for partition_assignment_strategy; the engine shares out.

Source: aiokafka.coordinator.assignors, aiokafka 0.14.
"""
