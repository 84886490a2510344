"""Apache Kafka's client, timer and broker machinery for Python, with the hot paths compiled."""

__version__ = "0.1.0.dev0"
