"""aiokafka's AIOKafkaAdminClient and what it takes."""

from kafkacore.compat.aiokafka.admin.client import AIOKafkaAdminClient
from kafkacore.compat.aiokafka.admin.new_partitions import NewPartitions
from kafkacore.compat.aiokafka.admin.new_topic import NewTopic
from kafkacore.compat.aiokafka.admin.records_to_delete import RecordsToDelete

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete"]
