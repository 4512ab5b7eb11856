import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the commands of transcripts against a server and writes the transcripts anew with what came out:
 * {@code Tools BOOTSTRAP PREFIX OUTPUT_FOLDER TRANSCRIPT...}.
 *
 * <p>Most tools run inside this virtual machine, one after another, since a start of one takes longer than the rest: they leave through
 * Kafka's own {@link Exit}, which can be told to do something else. What differs from run to run (addresses, ids, times) is put into words,
 * so that two transcripts can be compared as text.
 */
public final class Tools {
    /** What a tool's script runs. */
    private static final Map<String, String> CLASSES = new LinkedHashMap<>();

    /** Leave through {@code System.exit}, and so get a virtual machine of their own. */
    private static final List<String> APART = List.of("kafka-verifiable-producer", "kafka-verifiable-consumer");

    /** A command that takes longer is taken for one that never ends. */
    private static final long LONGEST_MS = 60_000;

    static {
        String tools = "org.apache.kafka.tools.";
        CLASSES.put("kafka-acls", tools + "AclCommand");
        CLASSES.put("kafka-broker-api-versions", tools + "BrokerApiVersionsCommand");
        CLASSES.put("kafka-client-compatibility", tools + "ClientCompatibilityTest");
        CLASSES.put("kafka-client-metrics", tools + "ClientMetricsCommand");
        CLASSES.put("kafka-cluster", tools + "ClusterTool");
        CLASSES.put("kafka-configs", "kafka.admin.ConfigCommand");
        CLASSES.put("kafka-console-consumer", tools + "consumer.ConsoleConsumer");
        CLASSES.put("kafka-console-producer", tools + "ConsoleProducer");
        CLASSES.put("kafka-consumer-groups", tools + "consumer.group.ConsumerGroupCommand");
        CLASSES.put("kafka-consumer-perf-test", tools + "ConsumerPerformance");
        CLASSES.put("kafka-delete-records", tools + "DeleteRecordsCommand");
        CLASSES.put("kafka-e2e-latency", tools + "EndToEndLatency");
        CLASSES.put("kafka-features", tools + "FeatureCommand");
        CLASSES.put("kafka-get-offsets", tools + "GetOffsetShell");
        CLASSES.put("kafka-groups", tools + "GroupsCommand");
        CLASSES.put("kafka-leader-election", tools + "LeaderElectionCommand");
        CLASSES.put("kafka-log-dirs", tools + "LogDirsCommand");
        CLASSES.put("kafka-producer-perf-test", tools + "ProducerPerformance");
        CLASSES.put("kafka-reassign-partitions", tools + "reassign.ReassignPartitionsCommand");
        CLASSES.put("kafka-replica-verification", tools + "ReplicaVerificationTool");
        CLASSES.put("kafka-topics", tools + "TopicCommand");
        CLASSES.put("kafka-transactions", tools + "TransactionsCommand");
        CLASSES.put("kafka-verifiable-consumer", tools + "VerifiableConsumer");
        CLASSES.put("kafka-verifiable-producer", tools + "VerifiableProducer");
    }

    private final String bootstrap;
    private final Path folder;
    private final Admin admin;
    private final String cluster;
    private final Node broker;
    private final Sink sink = new Sink();

    /** What names in the transcript that is being run begin with, so that it disturbs nobody and nobody disturbs it. */
    private String prefix;

    private Tools(String bootstrap, Path folder) throws Exception {
        this.bootstrap = bootstrap;
        this.folder = folder;
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        admin = Admin.create(properties);
        cluster = admin.describeCluster().clusterId().get();
        broker = admin.describeCluster().nodes().get().iterator().next();
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        Tools tools = new Tools(args[0], Path.of(args[2]));
        PrintStream all = new PrintStream(tools.sink, true, StandardCharsets.UTF_8);
        System.setOut(all);
        System.setErr(all);
        for (String name : Arrays.copyOfRange(args, 3, args.length)) {
            Path transcript = Path.of(name);
            String file = transcript.getFileName().toString();
            tools.prefix = args[1] + "-" + file.replace(".txt", "");
            Files.write(tools.folder.resolve(file), new Transcript(tools).run(Files.readAllLines(transcript)));
            out.println(file);
            out.flush();
        }
        // Threads that a tool left behind must not keep this running.
        Runtime.getRuntime().halt(0);
    }

    /** One transcript: its commands are run in their order, everything else but the output that stood behind them is kept. */
    private static final class Transcript {
        private final Tools tools;
        private final List<String> written = new ArrayList<>();
        private final List<Process> background = new ArrayList<>();

        private Transcript(Tools tools) {
            this.tools = tools;
        }

        private List<String> run(List<String> lines) throws Exception {
            try {
                boolean output = false;
                for (int at = 0; at < lines.size(); at++) {
                    String line = lines.get(at);
                    if (line.startsWith("$ ") || line.startsWith("& ") || line.startsWith("~ ")) {
                        List<String> input = lines.subList(at + 1, lines.size()).stream()
                            .takeWhile(next -> next.startsWith("> ")).collect(Collectors.toList());
                        written.add(line);
                        written.addAll(input);
                        at += input.size();
                        carryOut(line, input);
                        output = true;
                    } else if (line.startsWith("#") || line.isEmpty()) {
                        written.add(line);
                        output = false;
                    } else if (!output) {
                        throw new IllegalArgumentException("output without a command: " + line);
                    }
                }
                return written;
            } finally {
                background.forEach(Process::destroyForcibly);
            }
        }

        private void carryOut(String line, List<String> input) throws Exception {
            String command = line.substring(2);
            if (line.startsWith("~ ")) {
                tools.waitForGroup(command.split(" ")[0].replace("RUN", tools.prefix), command.split(" ")[1]);
            } else if (line.startsWith("& ")) {
                background.add(tools.apart(tools.words(command)).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start());
            } else {
                String text = input.stream().map(next -> next.substring(2) + "\n").collect(Collectors.joining());
                written.addAll(tools.answer(command, text));
            }
        }
    }

    /** What a command printed, with its exit code when that is not 0, filtered by what stands behind {@code |}. */
    private List<String> answer(String command, String input) throws Exception {
        String[] stages = command.split(" \\| ");
        List<String> words = words(stages[0]);
        Files.write(folder.resolve("input"), input.replace("RUN", prefix).getBytes(StandardCharsets.UTF_8));
        Output output = APART.contains(words.get(0)) ? runApart(words) : runHere(words, input.replace("RUN", prefix));
        Stream<String> lines = new Words(words.get(0)).of(output.text).lines();
        for (String stage : Arrays.copyOfRange(stages, 1, stages.length)) {
            if (stage.equals("sort")) {
                lines = lines.sorted();
            } else if (stage.startsWith("grep -v ")) {
                Pattern pattern = Pattern.compile(stage.substring(8));
                lines = lines.filter(line -> !pattern.matcher(line).find());
            } else if (stage.startsWith("grep ")) {
                Pattern pattern = Pattern.compile(stage.substring(5));
                lines = lines.filter(line -> pattern.matcher(line).find());
            } else {
                throw new IllegalArgumentException(stage);
            }
        }
        List<String> answer = lines.map(line -> "  " + line).collect(Collectors.toList());
        if (output.code != 0) {
            answer.add("  [" + (output.code == Output.NEVER ? "never ended" : "exit code " + output.code) + "]");
        }
        return answer;
    }

    private List<String> words(String command) {
        List<String> words = new ArrayList<>();
        Matcher matcher = Pattern.compile("'([^']*)'|(\\S+)").matcher(command);
        while (matcher.find()) {
            String word = matcher.group(1) == null ? matcher.group(2) : matcher.group(1);
            words.add(word.replace("SERVER", bootstrap).replace("RUN", prefix).replace("BROKER", broker.idString())
                .replace("INPUT", folder.resolve("input").toString()));
        }
        return words;
    }

    private record Output(String text, int code) {
        private static final int NEVER = Integer.MIN_VALUE;
    }

    private static final class Exited extends Error {
        private Exited() {
            super("exited", null, false, false);
        }
    }

    private Output runHere(List<String> words, String input) throws Exception {
        ConcurrentLinkedQueue<Integer> codes = new ConcurrentLinkedQueue<>();
        List<Runnable> hooks = new ArrayList<>();
        Exit.Procedure leave = (code, message) -> {
            // An exit does not come back; what the tool prints about the error that stands in its place is not its own.
            sink.muted = Thread.currentThread();
            codes.add(code);
            throw new Exited();
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        sink.clear();
        InputStream stdin = System.in;
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        Class<?> tool = Class.forName(CLASSES.get(words.get(0)));
        String[] arguments = words.subList(1, words.size()).toArray(new String[0]);
        Thread thread = new Thread(() -> {
            try {
                tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (InvocationTargetException error) {
                if (!(error.getCause() instanceof Exited)) {
                    // What the virtual machine does with an error that leaves main.
                    System.err.println("Exception in thread \"main\" " + error.getCause());
                    codes.add(1);
                }
            } catch (ReflectiveOperationException error) {
                codes.add(1);
                System.err.println(error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        thread.join(LONGEST_MS);
        boolean ended = !thread.isAlive();
        if (ended) {
            hooks.forEach(Runnable::run);
        }
        System.setIn(stdin);
        System.out.flush();
        Integer code = codes.peek();
        return new Output(sink.buffer.toString(StandardCharsets.UTF_8), ended ? (code == null ? 0 : code) : Output.NEVER);
    }

    private ProcessBuilder apart(List<String> words) {
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"));
        String log4j = System.getProperty("log4j2.configurationFile");
        if (log4j != null) {
            command.add("-Dtools.log=" + System.getProperty("tools.log"));
            command.add("-Dlog4j2.configurationFile=" + log4j);
        }
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), CLASSES.get(words.get(0))));
        command.addAll(words.subList(1, words.size()));
        return new ProcessBuilder(command);
    }

    private Output runApart(List<String> words) throws Exception {
        File printed = folder.resolve("output").toFile();
        Process process = apart(words).redirectErrorStream(true).redirectOutput(printed).redirectInput(folder.resolve("input").toFile()).start();
        boolean ended = process.waitFor(LONGEST_MS, TimeUnit.MILLISECONDS);
        process.destroyForcibly();
        return new Output(Files.readString(printed.toPath()), ended ? process.exitValue() : Output.NEVER);
    }

    /** Waits until a group is in a state; what comes behind shows that it is not when this gives up. */
    private void waitForGroup(String group, String state) throws Exception {
        for (int attempt = 0; attempt < 300; attempt++) {
            try {
                if (admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get().groupState().toString().equals(state)) {
                    return;
                }
            } catch (java.util.concurrent.ExecutionException error) {
                // Not there yet.
            }
            Thread.sleep(100);
        }
    }

    /** Puts into words what two servers and two runs never have in common. */
    private final class Words {
        /** Where in the tool an error came up. */
        private static final Pattern STACK = Pattern.compile("(?m)^\\s+(at [a-zA-Z0-9.$]+[a-zA-Z/_$.<>0-9]*\\([^)]*\\)|\\.\\.\\. [0-9]+ more)\\R");

        private final String tool;

        private Words(String tool) {
            this.tool = tool;
        }

        private String of(String text) {
            String address = broker.host() + ":" + broker.port();
            String words = STACK.matcher(text).replaceAll("").replace(prefix, "RUN").replace(bootstrap, "SERVER").replace(address, "SERVER").replace(cluster, "CLUSTER")
                .replace(folder.toString(), "FOLDER");
            words = words.replaceAll("[ \t]+", " ").replaceAll("(?m)[ ]+$", "")
                .replaceAll("TopicId: [A-Za-z0-9_-]{22}", "TopicId: ID")
                .replaceAll("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID")
                .replaceAll("console-consumer-[0-9]+", "console-consumer-N")
                .replaceAll("perf-consumer-[0-9]+", "perf-consumer-N")
                .replaceAll("\\b1[0-9]{12}\\b", "MS")
                .replaceAll("(Leader|Replicas|Isr|entity-name|brokers?|\"broker\"|\\(id|entries|SERVER)( |: ?| \\()" + broker.id() + "\\b", "$1$2BROKER");
            return switch (tool) {
                case "kafka-producer-perf-test", "kafka-e2e-latency" -> words.replaceAll("[0-9]+\\.[0-9]+", "X").replaceAll("[0-9]+ ms", "X ms")
                    .replaceAll("th = [0-9]+", "th = X");
                case "kafka-consumer-perf-test" -> words.lines().map(Words::withoutTimes).collect(Collectors.joining("\n"));
                case "kafka-verifiable-producer" -> words.replaceAll("\"avg_throughput\":[0-9.]+", "\"avg_throughput\":X");
                // A name is quoted in a list for a spreadsheet when it is long.
                case "kafka-consumer-groups" -> words.replaceAll("\"(RUN[^\"]*)\"", "$1");
                case "kafka-cluster" -> words.replaceAll("(?m)^" + broker.id() + " .*" + broker.port() + " ", "BROKER HOST PORT ");
                case "kafka-features" -> words.replaceAll("Epoch: [0-9]+", "Epoch: X");
                case "kafka-log-dirs" -> words.replaceAll("\"(logDir|size)\":(\"[^\"]*\"|[0-9]+)", "\"$1\":X");
                default -> words;
            };
        }

        /** Of the columns, the megabytes and the records are the same each time. */
        private static String withoutTimes(String line) {
            String[] columns = line.split(", ");
            if (columns.length < 8 || !Character.isDigit(line.charAt(0))) {
                return line;
            }
            return "X, X, " + columns[2] + ", X, " + columns[4] + ", X".repeat(columns.length - 5);
        }
    }

    /** Everything that tools print; they may keep the stream they found at first. */
    private static final class Sink extends OutputStream {
        private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();
        private volatile Thread muted;

        private synchronized void clear() {
            buffer.reset();
            muted = null;
        }

        @Override
        public synchronized void write(int b) {
            if (Thread.currentThread() != muted) {
                buffer.write(b);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int count) {
            if (Thread.currentThread() != muted) {
                buffer.write(bytes, from, count);
            }
        }
    }
}
