import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/**
 * Runs the cases that are asked for and prints what came of them: a JSON line that says who ran, then one for each case. What the cases and
 * their libraries print goes to standard error, so that it cannot stand between the answers.
 */
final class Answers {
    /** Succeeds when it returns, fails with what it throws. */
    interface Case {
        void run() throws Exception;
    }

    private Answers() {
    }

    /** Answers each of {@code names} and ends the virtual machine: threads of a case that never ended must not keep it running. */
    static void run(String client, String version, Map<String, Case> cases, Duration limit, List<String> names) throws InterruptedException {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        answers.printf("{\"client\": \"%s\", \"version\": \"%s\"}%n", client, version);
        for (String name : names) {
            String wrong = wrong(cases.get(name), limit);
            String detail = wrong == null ? "" : ", \"detail\": \"" + json(wrong) + "\"";
            answers.printf("{\"case\": \"%s\", \"ok\": %b%s}%n", name, wrong == null, detail);
        }
        Runtime.getRuntime().halt(0);
    }

    /** The version that a jar of Kafka says of itself. */
    static String version(Class<?> of, String file) throws IOException {
        Properties about = new Properties();
        try (InputStream text = of.getResourceAsStream(file)) {
            about.load(text);
        }
        return about.getProperty("version");
    }

    static void expect(String what, Object seen, Object wanted) {
        if (!Objects.equals(seen, wanted)) {
            throw new AssertionError(what + ": " + seen + " instead of " + wanted);
        }
    }

    /** Asks until it is so; for states that others bring about, such as the end of a rebalance. */
    static void waitUntil(String what, Duration patience, Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + patience.toNanos();
        while (!condition.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError(what + ": not so after " + patience.toSeconds() + " s");
            }
            Thread.sleep(50);
        }
    }

    /** What is wrong, or null. */
    private static String wrong(Case body, Duration limit) throws InterruptedException {
        if (body == null) {
            return "this program has no such case";
        }
        String[] outcome = {"not done after " + limit.toSeconds() + " s"};
        Thread thread = new Thread(() -> {
            try {
                body.run();
                outcome[0] = null;
            } catch (Throwable error) {
                error.printStackTrace();
                outcome[0] = String.valueOf(error instanceof ExecutionException ? error.getCause() : error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        thread.join(limit.toMillis());
        return outcome[0];
    }

    private static String json(String text) {
        String shortened = text.length() > 500 ? text.substring(0, 500) : text;
        return shortened.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ");
    }
}
