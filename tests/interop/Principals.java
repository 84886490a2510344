// What Java and Kafka make of a certificate's name: for each line "rules in hex, name in DER in hex" the name and the user, each in hex.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Principals {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            String name = new X500Principal(HexFormat.of().parseHex(parts[1])).getName();
            String user;
            try {
                String rules = new String(HexFormat.of().parseHex(parts[0]), StandardCharsets.UTF_8);
                user = "user " + SslPrincipalMapper.fromRules(rules).getName(name);
            } catch (Exception error) {
                user = error.getClass().getSimpleName();
            }
            System.out.println(hex(name) + " " + hex(user));
        }
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE));
    }
}
