import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors. Each line of stdin is a group, its fields separated by tabs:
 *
 *   class of the assignor, how often to assign,
 *   nodes        id=rack, ...
 *   topics       name=replicas of partition 0/of partition 1/..., the ids of a partition's nodes separated by dots
 *   members      id;instance;rack;generation;topic topic ...;topic.partition ...   (what it had in that generation)
 *
 * Answered on stdout, a line each: nanoseconds of this thread's CPU for each assignment; then id=topic.partition ... of every member, and its user data in hex.
 */
public class Assignors {
    private static final ThreadMXBean clock = ManagementFactory.getThreadMXBean();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split("\t", -1)));
            out.flush();
        }
    }

    private static String answer(String[] fields) throws Exception {
        Cluster cluster = cluster(fields[2], fields[3]);
        List<String> nanos = new ArrayList<>();
        Map<String, Assignment> found = new HashMap<>();
        Map<String, String> userData = new HashMap<>();
        for (int i = 0; i < Integer.parseInt(fields[1]); i++) {
            Map<String, Subscription> members = members(fields[0], fields[4], userData);
            ConsumerPartitionAssignor assignor = make(fields[0]);
            long start = clock.getCurrentThreadCpuTime();
            found = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
            nanos.add(Long.toString(clock.getCurrentThreadCpuTime() - start));
        }
        List<String> assigned = new ArrayList<>();
        for (Map.Entry<String, Assignment> entry : found.entrySet()) {
            List<String> partitions = new ArrayList<>();
            for (TopicPartition tp : entry.getValue().partitions()) partitions.add(tp.topic() + "." + tp.partition());
            assigned.add(entry.getKey() + "=" + String.join(" ", partitions) + "=" + userData.get(entry.getKey()));
        }
        return String.join(",", nanos) + "\t" + String.join(",", assigned);
    }

    private static ConsumerPartitionAssignor make(String name) throws Exception {
        return (ConsumerPartitionAssignor) Class.forName("org.apache.kafka.clients.consumer." + name).getDeclaredConstructor().newInstance();
    }

    private static Cluster cluster(String nodeField, String topicField) {
        Map<Integer, Node> nodes = new HashMap<>();
        for (String node : nodeField.split(",")) {
            String[] parts = node.split("=", -1);
            nodes.put(Integer.parseInt(parts[0]), new Node(Integer.parseInt(parts[0]), "h", 1, parts[1].isEmpty() ? null : parts[1]));
        }
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : topicField.isEmpty() ? new String[0] : topicField.split(",")) {
            String[] parts = topic.split("=", -1);
            int index = 0;
            for (String partition : parts[1].split("/")) {
                Node[] replicas = Arrays.stream(partition.split("\\.")).map(id -> nodes.get(Integer.parseInt(id))).toArray(Node[]::new);
                partitions.add(new PartitionInfo(parts[0], index++, replicas[0], replicas, replicas));
            }
        }
        return new Cluster("c", nodes.values(), partitions, new HashSet<>(), new HashSet<>());
    }

    private static Map<String, Subscription> members(String assignor, String field, Map<String, String> userData) throws Exception {
        Map<String, Subscription> members = new HashMap<>();
        for (String member : field.split(",")) {
            String[] parts = member.split(";", -1);
            List<String> topics = Arrays.asList(parts[4].split(" "));
            List<TopicPartition> owned = new ArrayList<>();
            for (String partition : parts[5].isEmpty() ? new String[0] : parts[5].split(" ")) {
                int dot = partition.lastIndexOf('.');
                owned.add(new TopicPartition(partition.substring(0, dot), Integer.parseInt(partition.substring(dot + 1))));
            }
            int generation = Integer.parseInt(parts[3]);
            ConsumerPartitionAssignor own = make(assignor);
            if (generation >= 0) own.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, parts[0], Optional.empty()));
            ByteBuffer data = own.subscriptionUserData(new HashSet<>(topics));
            userData.put(parts[0], data == null ? "" : hex(data.duplicate()));
            boolean cooperative = own.supportedProtocols().contains(ConsumerPartitionAssignor.RebalanceProtocol.COOPERATIVE);
            Subscription subscription = new Subscription(
                topics, data, cooperative ? owned : List.of(), generation, parts[2].isEmpty() ? Optional.empty() : Optional.of(parts[2]));
            if (!parts[1].isEmpty()) subscription.setGroupInstanceId(Optional.of(parts[1]));
            members.put(parts[0], subscription);
        }
        return members;
    }

    private static String hex(ByteBuffer data) {
        StringBuilder text = new StringBuilder();
        while (data.hasRemaining()) text.append(String.format("%02x", data.get()));
        return text.toString();
    }
}
