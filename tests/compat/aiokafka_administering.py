"""What programs do with aiokafka's admin client."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.compat.aiokafka_face import Face
from tests.compat.both_packages import case


@case
async def topics_of_a_cluster(k: Face) -> Any:
    admin, kinds = await k.admin(), k.module("admin")
    topic = k.topic + "-more"

    async def described(name: str) -> Any:
        """What the cluster says once every broker has heard of the topic."""
        while True:
            (found,) = await admin.describe_topics([name])
            if found["partitions"]:
                return found
            await asyncio.sleep(0.02)

    seen = [
        (await admin.create_topics([kinds.NewTopic(topic, 1, 1, topic_configs={"retention.ms": "1000"})])).topic_errors,
        (await admin.create_topics([kinds.NewTopic(k.topic, 1, 1)])).to_object()["topic_errors"][0]["error_code"],
        (await admin.create_topics([kinds.NewTopic(topic + "2", 1, 1)], validate_only=True)).to_object()["topic_errors"],
        (await admin.create_partitions({topic: kinds.NewPartitions(3)})).topic_errors,
        await k.raised(lambda: admin.create_partitions({topic: kinds.NewPartitions(1)})),
        (await described(topic))["topic"],
        topic in await admin.list_topics(),
        [each["partition"] for each in (await described(k.topic))["partitions"]],
        sorted((await described(k.topic))["partitions"][0]),
        sorted(await admin.describe_cluster()),
        [sorted(each) for each in (await admin.describe_cluster())["brokers"]],
        (await admin.create_partitions({k.topic: kinds.NewPartitions(4, [[1], [1]])})).to_object()["topic_errors"],
        len(await admin.describe_topics()) > 1,
        (await admin.delete_topics([topic])).topic_error_codes,
        await k.raised(lambda: kinds.NewTopic("t", 1, 1, {0: [1]})),
        await k.raised(lambda: kinds.NewTopic("t", -1, -1)),
    ]
    return seen


@case
async def settings_of_a_topic(k: Face) -> Any:
    admin, kinds = await k.admin(), k.module("admin.config_resource")

    def resource(configs: Any, name: str = k.topic) -> Any:
        return kinds.ConfigResource("topic", name, configs)

    names = {"retention.ms": None, "cleanup.policy": None}
    altered = await admin.alter_configs([resource({"max.message.bytes": "6000", "retention.ms": "5000"})])
    for _ in range(1_000):  # a broker hears of it after the answer
        described = await admin.describe_configs([resource(names)])
        if "5000" in str([each.to_object() for each in described]):
            break
        await asyncio.sleep(0.02)
    layers = await admin.describe_configs([resource({"retention.ms": None, "max.message.bytes": None})], include_synonyms=True)
    everything = await admin.describe_configs([resource(None)])
    absent = await admin.describe_configs([resource(names, "absent")])
    broker = await admin.describe_configs(
        [resource(names), kinds.ConfigResource(kinds.ConfigResourceType.BROKER, "1", {"num.partitions": None})]
    )
    return (
        [each.to_object() for each in altered][:1],
        [each.to_object() for each in described],
        [
            [(entry["config_names"], entry["config_synonyms"]) for entry in each.to_object()["resources"][0]["config_entries"]]
            for each in layers
        ],
        len(everything[0].resources[0][4]) > 20,
        [each.resources[0][0] for each in absent],
        [(each.resources[0][2], [entry[0] for entry in each.resources[0][4]]) for each in broker],
    )


@case
async def groups_and_records(k: Face) -> Any:
    await k.fill(5)
    admin, kinds = await k.admin(), k.module("admin")
    member = await k.member()
    await member.commit({k.tp(): (3, "note")})
    (group,) = (await admin.describe_consumer_groups([k.group]))[0].groups
    (answer,) = await admin.describe_consumer_groups([k.group], await admin.find_coordinator(k.group))
    shown = (group[0], group[1].startswith("group-of"), group[2:5], next(each[1:3] for each in group[5])[1].startswith("/"))
    return (
        (k.group, "consumer") in await admin.list_consumer_groups(),
        (k.group, "consumer") in await admin.list_consumer_groups([1]),
        (await admin.find_coordinator(k.topic, 1), sorted(answer.to_object()["groups"][0])),
        await admin.find_coordinator(k.group) == (await admin.describe_cluster())["brokers"][0]["node_id"],
        shown,
        sorted((tp.partition, *at) for tp, at in (await admin.list_consumer_group_offsets(k.group)).items()),
        sorted((tp.partition, *at) for tp, at in (await admin.list_consumer_group_offsets(k.group, partitions=[k.tp(1)])).items()),
        [*(await admin.delete_records({k.tp(): kinds.RecordsToDelete(2)})).values()],
        (await member.beginning_offsets([k.tp()]))[k.tp()],
    )


@case
async def two_of_which_one_fails(k: Face) -> Any:
    """What is raised, or in the answer; the other one is done all the same."""
    admin, kinds, other, absent = await k.admin(), k.module("admin"), f"{k.topic}-other", f"{k.topic}-absent"
    resource = k.module("admin.config_resource").ConfigResource
    made = await admin.create_topics([kinds.NewTopic(name, 1, 1) for name in (k.topic, other)])
    found: list[Any] = [sorted(each[:2] for each in made.topic_errors)]
    grown = {name: kinds.NewPartitions(3) for name in (absent, other)}
    found.append(await k.raised(lambda: admin.create_partitions(grown)))
    found.append(await k.raised(lambda: admin.create_partitions({other: kinds.NewPartitions(2)})))
    while len((await admin.describe_topics([other]))[0]["partitions"]) < 3:
        await asyncio.sleep(0.02)
    found.append(sorted((each["topic"], each["error_code"]) for each in await admin.describe_topics([absent, other])))
    altered = await admin.alter_configs([resource("topic", name, {"retention.ms": "5000"}) for name in (absent, other)])
    found.append(sorted((each[0], each[3]) for answer in altered for each in answer.resources))
    deleted = await admin.delete_topics([absent, other])
    while other in await admin.list_topics():
        await asyncio.sleep(0.02)
    return found, sorted(deleted.topic_error_codes)
