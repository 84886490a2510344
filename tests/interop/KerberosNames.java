import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Reads lines of a rule and a principal, both in hex; writes what Kafka makes of them with the default realm HOME. */
public class KerberosNames {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        HexFormat hex = HexFormat.of();
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            String rule = new String(hex.parseHex(parts[0]), StandardCharsets.UTF_8);
            String principal = new String(hex.parseHex(parts[1]), StandardCharsets.UTF_8);
            String said;
            try {
                KerberosShortNamer namer = KerberosShortNamer.fromUnparsedRules("HOME", List.of(rule));
                try {
                    said = "user " + namer.shortName(KerberosName.parse(principal));
                } catch (Exception error) {
                    said = "none";
                }
            } catch (Exception error) {
                said = "refused";
            }
            out.append(hex.formatHex(said.getBytes(StandardCharsets.UTF_8))).append('\n');
        }
        System.out.print(out);
    }
}
