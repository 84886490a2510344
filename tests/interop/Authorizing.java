import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's own authorizer. Each line of stdin has four fields, separated by tabs:
 *
 *   whether everyone is allowed if no ACL is found, super users,
 *   ACLs         type,name,pattern,principal,host,operation,permission ...   by Kafka's numbers
 *   questions    principal,host,operation,type,name ...                      without a name: about any resource of the type
 *
 * Answered on stdout, a line each: 1 for an allowed question, else 0.
 */
public class Authorizing {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split("\t", -1)));
            out.flush();
        }
    }

    static String answer(String[] fields) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("allow.everyone.if.no.acl.found", fields[0], "super.users", fields[1]));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        for (String acl : fields[2].isEmpty() ? new String[0] : fields[2].split(" ")) {
            String[] f = acl.split(",", -1);
            authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(ResourceType.fromCode(Byte.parseByte(f[0])), f[1],
                PatternType.fromCode(Byte.parseByte(f[2])), f[3], f[4], AclOperation.fromCode(Byte.parseByte(f[5])),
                AclPermissionType.fromCode(Byte.parseByte(f[6]))));
        }
        authorizer.completeInitialLoad();
        StringBuilder answers = new StringBuilder();
        for (String question : fields[3].split(" ")) {
            String[] f = question.split(",", -1);
            String[] who = f[0].split(":", 2);
            Context context = new Context(new KafkaPrincipal(who[0], who[1]), InetAddress.getByName(f[1]));
            AclOperation operation = AclOperation.fromCode(Byte.parseByte(f[2]));
            ResourceType type = ResourceType.fromCode(Byte.parseByte(f[3]));
            AuthorizationResult result = f[4].isEmpty()
                ? authorizer.authorizeByResourceType(context, operation, type)
                : authorizer.authorize(context, List.of(
                    new Action(operation, new ResourcePattern(type, f[4], PatternType.LITERAL), 1, true, true))).get(0);
            answers.append(result == AuthorizationResult.ALLOWED ? '1' : '0');
        }
        return answers.toString();
    }
}
