import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TransactionalIdAuthorizationException;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams: words are counted in a state store behind a repartition topic. {@code WordCount BOOTSTRAP STATE_FOLDER CASE...} prints one
 * JSON line for each case.
 */
public final class WordCount {
    private static final Duration CASE_LIMIT = Duration.ofSeconds(120);
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private final String bootstrap;
    private final Path state;
    private final Admin admin;
    private final Map<String, Answers.Case> cases = new LinkedHashMap<>();

    private WordCount(String bootstrap, Path state) {
        this.bootstrap = bootstrap;
        this.state = state;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        cases.put("count", this::count);
        cases.put("internal-topics", this::internalTopics);
        cases.put("restart", this::restart);
        cases.put("restore", this::restore);
        cases.put("two-instances", this::twoInstances);
        cases.put("global-table", this::globalTable);
        cases.put("exactly-once-refused", this::exactlyOnceRefused);
        cases.put("restart-before", () -> countOnce(name("restart"), "a b a", Map.of("a", 2L, "b", 1L)));
        // Nothing but the changelog topic knows what was counted before.
        cases.put("restart-after", () -> {
            forget(name("restart"));
            countOnce(name("restart"), "a", Map.of("a", 3L));
        });
    }

    public static void main(String[] arguments) throws Exception {
        WordCount program = new WordCount(arguments[0], Path.of(arguments[1]));
        String version = Answers.version(KafkaStreams.class, "/kafka/kafka-streams-version.properties");
        Answers.run("streams", version, program.cases, CASE_LIMIT, Arrays.asList(arguments).subList(2, arguments.length));
    }

    private static void waitUntil(String what, Callable<Boolean> condition) throws Exception {
        Answers.waitUntil(what, PATIENCE, condition);
    }

    private String name(String of) {
        return System.getenv().getOrDefault("COMPAT_RUN", "c") + "-streams-" + of;
    }

    private void create(String... topics) throws Exception {
        admin.createTopics(Arrays.stream(topics).map(topic -> new NewTopic(topic, Optional.of(2), Optional.of((short) 1))).collect(Collectors.toList()))
            .all().get();
    }

    private void produce(String topic, List<String[]> pairs) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String[] pair : pairs) {
                sent.add(producer.send(new ProducerRecord<>(topic, pair[0], pair[1])));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
        }
    }

    /** The lines of a text get keys that spread them over the partitions. */
    private void say(String topic, String... lines) throws Exception {
        List<String[]> pairs = new ArrayList<>();
        for (int at = 0; at < lines.length; at++) {
            pairs.add(new String[] {"line " + at, lines[at]});
        }
        produce(topic, pairs);
    }

    private static Topology counting(String application) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(application + "-lines")
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .to(application + "-counts", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    private KafkaStreams configured(String application, Path folder, Topology topology, Map<String, Object> settings) {
        Properties all = new Properties();
        all.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        all.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        all.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
        all.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        all.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        all.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        all.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500);
        all.put("auto.offset.reset", "earliest");
        all.put("session.timeout.ms", 10_000);
        all.put("heartbeat.interval.ms", 500);
        all.putAll(settings);
        return new KafkaStreams(topology, all);
    }

    private KafkaStreams startCounting(String application, String instance) {
        KafkaStreams streams = configured(application, state.resolve(application).resolve(instance), counting(application), Map.of());
        streams.start();
        return streams;
    }

    /** The last count of each word in the topic of results. */
    private Map<String, Long> counts(String application) {
        Map<String, Long> found = new TreeMap<>();
        for (ConsumerRecord<String, Long> record : all(application + "-counts")) {
            found.put(record.key(), record.value());
        }
        return found;
    }

    private List<ConsumerRecord<String, Long>> all(String topic) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        List<ConsumerRecord<String, Long>> records = new ArrayList<>();
        try (KafkaConsumer<String, Long> reader = new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> reader.position(one) < ends.get(one))) {
                reader.poll(Duration.ofMillis(100)).forEach(records::add);
            }
        }
        return records;
    }

    private void waitForCounts(String application, Map<String, Long> wanted) throws Exception {
        AtomicReference<Map<String, Long>> seen = new AtomicReference<>(Map.of());
        try {
            waitUntil("counts", () -> {
                seen.set(counts(application));
                return seen.get().equals(new TreeMap<>(wanted));
            });
        } catch (AssertionError error) {
            throw new AssertionError("counts: " + seen.get() + " instead of " + wanted);
        }
    }

    private void countAndClose(String application, Map<String, Long> wanted) throws Exception {
        KafkaStreams streams = startCounting(application, "one");
        try {
            waitForCounts(application, wanted);
        } finally {
            Answers.expect("closed", streams.close(PATIENCE), true);
        }
    }

    private void countOnce(String application, String line, Map<String, Long> more) throws Exception {
        if (!admin.listTopics().names().get().contains(application + "-lines")) {
            create(application + "-lines", application + "-counts");
        }
        Map<String, Long> wanted = counts(application);
        wanted.putAll(more);
        say(application + "-lines", line);
        countAndClose(application, wanted);
    }

    private void forget(String application) throws Exception {
        if (!Files.exists(state.resolve(application))) {
            return;
        }
        try (var files = Files.walk(state.resolve(application))) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }

    private void count() throws Exception {
        String application = name("count");
        create(application + "-lines", application + "-counts");
        say(application + "-lines", "a rose is a rose", "is a rose", "no rose no thorn");
        countAndClose(application, Map.of("a", 3L, "rose", 4L, "is", 2L, "no", 2L, "thorn", 1L));
    }

    private void internalTopics() throws Exception {
        String application = name("internal");
        create(application + "-lines", application + "-counts");
        say(application + "-lines", "a");
        countAndClose(application, Map.of("a", 1L));
        Set<String> topics = admin.listTopics().names().get().stream().filter(topic -> topic.startsWith(application)).collect(Collectors.toSet());
        String repartition = application + "-words-repartition", changelog = application + "-counts-changelog";
        Answers.expect("topics", topics, Set.of(application + "-lines", application + "-counts", repartition, changelog));
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, changelog);
        Answers.expect("the changelog's cleanup.policy", admin.describeConfigs(List.of(resource)).all().get().get(resource).get("cleanup.policy").value(), "compact");
        // Streams deletes what it has read of a repartition topic.
        KafkaStreams streams = startCounting(application, "one");
        try {
            List<TopicPartition> partitions = List.of(new TopicPartition(repartition, 0), new TopicPartition(repartition, 1));
            var latest = partitions.stream().collect(Collectors.toMap(one -> one, one -> OffsetSpec.latest()));
            var earliest = partitions.stream().collect(Collectors.toMap(one -> one, one -> OffsetSpec.earliest()));
            waitUntil("records of the repartition topic are deleted", () -> {
                say(application + "-lines", "a");
                Thread.sleep(500);
                long begin = admin.listOffsets(earliest).all().get().values().stream().mapToLong(found -> found.offset()).sum();
                return begin > 0 && begin <= admin.listOffsets(latest).all().get().values().stream().mapToLong(found -> found.offset()).sum();
            });
        } finally {
            streams.close(PATIENCE);
        }
    }

    private void restart() throws Exception {
        countOnce(name("again"), "a b a", Map.of("a", 2L, "b", 1L));
        countOnce(name("again"), "a c", Map.of("a", 3L, "c", 1L));
    }

    private void restore() throws Exception {
        countOnce(name("restore"), "a b a", Map.of("a", 2L, "b", 1L));
        forget(name("restore"));
        countOnce(name("restore"), "a c", Map.of("a", 3L, "c", 1L));
    }

    private void twoInstances() throws Exception {
        String application = name("two");
        create(application + "-lines", application + "-counts");
        say(application + "-lines", "a", "b", "c", "d");
        try (KafkaStreams one = startCounting(application, "one"); KafkaStreams two = startCounting(application, "two")) {
            waitUntil("tasks of both", () -> tasks(one) > 0 && tasks(two) > 0 && tasks(one) + tasks(two) == 4);
            say(application + "-lines", "a", "b", "c", "d");
            waitForCounts(application, Map.of("a", 2L, "b", 2L, "c", 2L, "d", 2L));
            two.close(PATIENCE);
            waitUntil("all tasks", () -> tasks(one) == 4);
            say(application + "-lines", "a", "b", "c", "d");
            waitForCounts(application, Map.of("a", 3L, "b", 3L, "c", 3L, "d", 3L));
        }
    }

    private static int tasks(KafkaStreams streams) {
        return streams.metadataForLocalThreads().stream().mapToInt(thread -> thread.activeTasks().size()).sum();
    }

    private void globalTable() throws Exception {
        String application = name("global");
        create(application + "-lines", application + "-names", application + "-counts");
        produce(application + "-names", List.of(new String[] {"line 0", "zero"}, new String[] {"line 1", "one"}));
        StreamsBuilder builder = new StreamsBuilder();
        GlobalKTable<String, String> names = builder.globalTable(application + "-names");
        builder.<String, String>stream(application + "-lines")
            .join(names, (key, line) -> key, (line, name) -> name)
            .selectKey((key, name) -> name)
            .mapValues(name -> 1L)
            .to(application + "-counts", Produced.with(Serdes.String(), Serdes.Long()));
        say(application + "-lines", "x", "y");
        try (KafkaStreams streams = configured(application, state.resolve(application), builder.build(), Map.of())) {
            streams.start();
            waitForCounts(application, Map.of("zero", 1L, "one", 1L));
        }
    }

    /** What somebody sees who asks for what is not there: an end, at once, with the reason. */
    private void exactlyOnceRefused() throws Exception {
        String application = name("exactly-once");
        create(application + "-lines", application + "-counts");
        say(application + "-lines", "a");
        AtomicReference<Throwable> seen = new AtomicReference<>();
        Map<String, Object> settings = Map.of(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        try (KafkaStreams streams = configured(application, state.resolve(application), counting(application), settings)) {
            streams.setUncaughtExceptionHandler(error -> {
                seen.set(error);
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            waitUntil("the refusal", () -> seen.get() != null);
        }
        Throwable cause = seen.get();
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        Answers.expect("the reason", cause.getClass(), TransactionalIdAuthorizationException.class);
        Answers.expect("what was written", counts(application), Map.of());
    }
}
