"""Other clients' names over kafkacore: a program changes its imports. One package per client; what they share is in `settings`."""

from kafkacore.compat.acceleration import Acceleration, accelerate

__all__ = ["Acceleration", "accelerate"]
