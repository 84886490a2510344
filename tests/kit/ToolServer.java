import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools one after the other, so that a test run pays for one start of a JVM and not for fifty.
 * Asked on stdin: the number of strings, the strings (class name, then arguments) and the tool's stdin; answered on stdout: its exit code,
 * its stdout and its stderr. Every string and every byte array is preceded by its length; all numbers are 4 bytes, big-endian.
 */
public class ToolServer {
    /** Ends a tool where it would have ended the JVM. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static Integer exitCode;
    private static final List<Runnable> hooks = new ArrayList<>();
    private static Map<Thread, Thread> runtimeHooks; // those that tools hand to the JVM itself, which will not end

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        Exit.Procedure end = (code, message) -> {
            if (message != null) System.err.println(message);
            if (exitCode == null) exitCode = code;
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        @SuppressWarnings("unchecked")
        Map<Thread, Thread> known = (Map<Thread, Thread>) field.get(null);
        runtimeHooks = known;
        PrintStream realErr = System.err;
        while (true) {
            int count = in.readInt();
            String[] words = new String[count];
            for (int i = 0; i < count; i++) words[i] = new String(block(in), StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(block(in)));
            ByteArrayOutputStream stdout = new ByteArrayOutputStream();
            ByteArrayOutputStream stderr = new ByteArrayOutputStream();
            System.setOut(new PrintStream(stdout, true));
            System.setErr(new PrintStream(stderr, true));
            exitCode = null;
            hooks.clear();
            run(words[0], Arrays.copyOfRange(words, 1, count));
            System.out.flush();
            System.err.flush();
            System.setErr(realErr);
            out.writeInt(exitCode);
            for (ByteArrayOutputStream stream : List.of(stdout, stderr)) {
                out.writeInt(stream.size());
                stream.writeTo(out);
            }
            out.flush();
        }
    }

    private static byte[] block(DataInputStream in) throws java.io.IOException {
        return in.readNBytes(in.readInt());
    }

    private static void run(String name, String[] args) {
        Set<Thread> before = new HashSet<>(runtimeHooks.keySet());
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Ended)) {
                e.getCause().printStackTrace();
                if (exitCode == null) exitCode = 1;
            }
        } catch (ReflectiveOperationException e) {
            e.printStackTrace();
            exitCode = 127;
        }
        for (Thread hook : new ArrayList<>(runtimeHooks.keySet())) {
            if (!before.contains(hook) && Runtime.getRuntime().removeShutdownHook(hook)) hooks.add(hook);
        }
        for (Runnable hook : hooks) hook.run();
        if (exitCode == null) exitCode = 0;
    }
}
