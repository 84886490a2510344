"""A coordinator that refuses commits."""

from kafkacore.protocol import OffsetCommitResponse
from kafkacore.protocol.group import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kafkacore.testing import EmbeddedCluster


def refuse_commits(cluster: EmbeddedCluster, code: int, times: int = 1) -> list[int]:
    """Answers the next commits with an error; the answers that are left."""
    left = [code] * times

    def refuse(request):
        if not left:
            return None
        code = left.pop()
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=t.name,
                    topic_id=t.topic_id,
                    partitions=[OffsetCommitResponsePartition(partition_index=q.partition_index, error_code=code) for q in t.partitions],
                )
                for t in request.topics
            ]
        )

    cluster.control("OffsetCommit", refuse)
    return left
