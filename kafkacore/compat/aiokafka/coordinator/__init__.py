"""The way to aiokafka's assignors."""
