"""Settings for all tests."""

from hypothesis import settings

# A busy machine is not a failure, so no example has a deadline.
settings.register_profile("kafkacore", deadline=None)
settings.load_profile("kafkacore")
