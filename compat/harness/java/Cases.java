import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The cases of the Java client, for all of its versions: {@code Cases CLIENT BOOTSTRAP CASE...} prints one JSON line for each case.
 */
@SuppressWarnings({"deprecation", "removal"})
public final class Cases {
    /** Longer than any session or time-out that a case sets, on a loaded machine. */
    private static final Duration CASE_LIMIT = Duration.ofSeconds(90);

    private static final Duration PATIENCE = Duration.ofSeconds(40);

    /** A fixed moment, in milliseconds. */
    private static final long MOMENT = 1_700_000_000_000L;

    private static final byte[] VALUE = bytes("v");
    private static final byte[] KEY = bytes("k");
    private static final byte[] NO_BYTES = {};

    private final String client;
    private final String bootstrap;
    private final Admin admin;
    private final Map<String, Answers.Case> cases = new LinkedHashMap<>();

    private record Keyed(byte[] key, byte[] value) {
        private String shown() {
            return show(key) + "=" + show(value);
        }
    }

    private final Map<String, Object> security;

    /** {@code security} are the settings of all clients, where the listener is secured. */
    private Cases(String client, String bootstrap, Map<String, Object> security) {
        this.client = client;
        this.bootstrap = bootstrap;
        this.security = security;
        Map<String, Object> settings = new HashMap<>(security);
        settings.put("bootstrap.servers", bootstrap);
        this.admin = Admin.create(settings);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            cases.put("codec-" + codec, () -> many("codec-" + codec, Map.of("compression.type", codec, "enable.idempotence", false)));
        }
        cases.put("keys", this::keys);
        cases.put("headers", this::headers);
        cases.put("tombstones", this::tombstones);
        cases.put("timestamps", this::timestamps);
        cases.put("seek-by-time", this::seekByTime);
        cases.put("idempotent", () -> many("idempotent", Map.of("enable.idempotence", true)));
        cases.put("group-rebalance", this::groupRebalance);
        cases.put("group-continue", () -> {
            readTenAndCommit(name("group-continue"));
            goOn(name("group-continue"));
        });
        cases.put("static-member", this::staticMember);
        cases.put("tls", this::tls);
        cases.put("sasl-plain", () -> sasl("sasl-plain", "PLAIN", "PLAIN"));
        cases.put("sasl-scram", () -> sasl("sasl-scram", "SCRAM-SHA-512", "SCRAM-SHA-256"));
        cases.put("restart-before", () -> readTenAndCommit(name("restart")));
        cases.put("restart-after", () -> goOn(name("restart")));
        cases.put("admin-create", this::adminCreate);
        cases.put("admin-describe", this::adminDescribe);
        cases.put("admin-alter-config", this::adminAlterConfig);
        cases.put("admin-grow", this::adminGrow);
        cases.put("admin-list-offsets", this::adminListOffsets);
        cases.put("admin-reset-offsets", this::adminResetOffsets);
        cases.put("admin-delete-records", this::adminDeleteRecords);
        cases.put("admin-delete-topic", this::adminDeleteTopic);
        cases.put("admin-list-groups", this::adminListGroups);
        cases.put("admin-describe-group", this::adminDescribeGroup);
        cases.put("admin-delete-group", this::adminDeleteGroup);
    }

    public static void main(String[] arguments) throws Exception {
        Cases program = new Cases(arguments[0], arguments[1], Map.of());
        String version = Answers.version(KafkaConsumer.class, "/kafka/kafka-version.properties");
        Answers.run(arguments[0], version, program.cases, CASE_LIMIT, Arrays.asList(arguments).subList(2, arguments.length));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String show(byte[] bytes) {
        return bytes == null ? "null" : bytes.length + ":" + new String(bytes, StandardCharsets.ISO_8859_1);
    }

    private static void waitUntil(String what, Callable<Boolean> condition) throws Exception {
        Answers.waitUntil(what, PATIENCE, condition);
    }

    /** The topic and group of a case. */
    private String name(String of) {
        return System.getenv().getOrDefault("COMPAT_RUN", "c") + "-" + client + "-" + of;
    }

    private void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.of((short) 1)).configs(configs))).all().get();
    }

    private void create(String topic) throws Exception {
        create(topic, 1, Map.of());
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, Long time, byte[] key, byte[] value) {
        return new ProducerRecord<>(topic, 0, time, key, value);
    }

    /** All of them must be acknowledged. */
    private void produce(List<ProducerRecord<byte[], byte[]>> records, Map<String, Object> settings) throws Exception {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 20));
        all.putAll(security);
        all.putAll(settings);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                sent.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
        }
    }

    private void produceNumbered(String topic, int count) throws Exception {
        produce(IntStream.range(0, count).mapToObj(i -> record(topic, null, null, bytes("" + i))).collect(Collectors.toList()), Map.of());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, Map<String, Object> settings) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.putAll(security);
        all.put("group.id", group);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        all.put("session.timeout.ms", "10000");
        all.put("heartbeat.interval.ms", "500");
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private KafkaConsumer<byte[], byte[]> member(String topic, Map<String, Object> settings) {
        KafkaConsumer<byte[], byte[]> member = consumer(topic, settings);
        member.subscribe(List.of(topic));
        return member;
    }

    /** The next records, at least that many. */
    private static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> member, int count) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        waitUntil(count + " records", () -> {
            member.poll(Duration.ofMillis(200)).forEach(records::add);
            return records.size() >= count;
        });
        return records;
    }

    private static List<String> values(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(record -> show(record.value())).collect(Collectors.toList());
    }

    private static List<String> numbers(int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> show(bytes("" + i))).collect(Collectors.toList());
    }

    /** All of partition 0 from an offset on, and that nothing follows. */
    private List<ConsumerRecord<byte[], byte[]>> read(String topic, int count, long offset) throws Exception {
        try (KafkaConsumer<byte[], byte[]> reader = consumer(name("reader"), Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            reader.assign(List.of(partition));
            reader.seek(partition, offset);
            List<ConsumerRecord<byte[], byte[]>> records = take(reader, count);
            Answers.expect("records", records.size(), count);
            Answers.expect("the end", reader.endOffsets(List.of(partition)).get(partition), records.get(count - 1).offset() + 1);
            return records;
        }
    }

    private void many(String of, Map<String, Object> settings) throws Exception {
        String topic = name(of);
        List<Keyed> sent = IntStream.range(0, 500)
            .mapToObj(i -> new Keyed(bytes("key " + i % 7), bytes(String.format("record %06d of a text that compresses well", i))))
            .collect(Collectors.toList());
        create(topic);
        produce(sent.stream().map(one -> record(topic, null, one.key, one.value)).collect(Collectors.toList()), settings);
        List<String> seen = read(topic, 500, 0).stream().map(one -> new Keyed(one.key(), one.value()).shown()).collect(Collectors.toList());
        Answers.expect("records", seen, sent.stream().map(Keyed::shown).collect(Collectors.toList()));
    }

    private void keys() throws Exception {
        String topic = name("keys");
        List<byte[]> sent = Arrays.asList(null, NO_BYTES, new byte[] {(byte) 0xff, 0, (byte) 0xfe});
        create(topic);
        produce(sent.stream().map(key -> record(topic, null, key, VALUE)).collect(Collectors.toList()), Map.of());
        List<String> seen = read(topic, 3, 0).stream().map(record -> show(record.key())).collect(Collectors.toList());
        Answers.expect("keys", seen, sent.stream().map(Cases::show).collect(Collectors.toList()));
    }

    private void headers() throws Exception {
        String topic = name("headers");
        create(topic);
        ProducerRecord<byte[], byte[]> record = record(topic, null, null, VALUE);
        record.headers().add("a", bytes("1")).add("a", bytes("2")).add("null", null).add("empty", NO_BYTES);
        produce(List.of(record), Map.of());
        List<String> seen = new ArrayList<>();
        for (Header header : read(topic, 1, 0).get(0).headers()) {
            seen.add(header.key() + "=" + show(header.value()));
        }
        Answers.expect("headers", seen, List.of("a=1:1", "a=1:2", "null=null", "empty=0:"));
    }

    private void tombstones() throws Exception {
        String topic = name("tombstones");
        create(topic);
        produce(Arrays.asList(VALUE, null, NO_BYTES).stream().map(value -> record(topic, null, KEY, value)).collect(Collectors.toList()), Map.of());
        Answers.expect("values", values(read(topic, 3, 0)), List.of("1:v", "null", "0:"));
    }

    private void timestamps() throws Exception {
        String topic = name("timestamps");
        List<Long> sent = List.of(MOMENT, MOMENT + 1, MOMENT - 5000);
        create(topic);
        produce(sent.stream().map(time -> record(topic, time, null, VALUE)).collect(Collectors.toList()), Map.of());
        List<ConsumerRecord<byte[], byte[]>> seen = read(topic, 3, 0);
        Answers.expect("times", seen.stream().map(ConsumerRecord::timestamp).collect(Collectors.toList()), sent);
        Answers.expect("their type", seen.get(0).timestampType(), TimestampType.CREATE_TIME);
    }

    private void seekByTime() throws Exception {
        String topic = name("seek-by-time");
        TopicPartition partition = new TopicPartition(topic, 0);
        create(topic);
        produce(IntStream.range(0, 10).mapToObj(i -> record(topic, MOMENT + i * 1000L, null, bytes("" + i))).collect(Collectors.toList()), Map.of());
        try (KafkaConsumer<byte[], byte[]> asking = consumer(topic, Map.of())) {
            OffsetAndTimestamp found = asking.offsetsForTimes(Map.of(partition, MOMENT + 3500)).get(partition);
            Answers.expect("the offset of the time", found.offset(), 4L);
            Answers.expect("its time", found.timestamp(), MOMENT + 4000);
            Answers.expect("a time behind all", asking.offsetsForTimes(Map.of(partition, MOMENT + 99_000)).get(partition), null);
        }
        Answers.expect("the record there", values(read(topic, 6, 4)), numbers(4, 10));
    }

    /** How many partitions each has; polls, as that is what moves a rebalance on. */
    private static List<Integer> shares(List<KafkaConsumer<byte[], byte[]>> members) {
        members.forEach(member -> member.poll(Duration.ofMillis(100)));
        return members.stream().map(member -> member.assignment().size()).collect(Collectors.toList());
    }

    private static Set<Integer> partitions(Collection<TopicPartition> of) {
        return of.stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
    }

    private void groupRebalance() throws Exception {
        String topic = name("group-rebalance");
        create(topic, 4, Map.of());
        try (KafkaConsumer<byte[], byte[]> one = member(topic, Map.of())) {
            try (KafkaConsumer<byte[], byte[]> two = member(topic, Map.of())) {
                waitUntil("two partitions each", () -> shares(List.of(one, two)).equals(List.of(2, 2)));
                Set<Integer> both = partitions(one.assignment());
                both.addAll(partitions(two.assignment()));
                Answers.expect("partitions of both", both, Set.of(0, 1, 2, 3));
            }
            waitUntil("all four", () -> shares(List.of(one)).equals(List.of(4)));
        }
    }

    private void readTenAndCommit(String topic) throws Exception {
        create(topic);
        produceNumbered(topic, 20);
        try (KafkaConsumer<byte[], byte[]> member = member(topic, Map.of("max.poll.records", 10))) {
            Answers.expect("the first ten", values(take(member, 10)), numbers(0, 10));
            member.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(10)));
        }
    }

    private void goOn(String topic) throws Exception {
        try (KafkaConsumer<byte[], byte[]> member = member(topic, Map.of())) {
            Answers.expect("the rest", values(take(member, 10)), numbers(10, 20));
        }
    }

    /** The same client at the listener that is secured, with the password that is right or another one. */
    private Cases connected(String mechanism, boolean right) {
        Map<String, String> environment = System.getenv();
        Map<String, Object> settings = new HashMap<>();
        settings.put("security.protocol", mechanism.isEmpty() ? "SSL" : "SASL_SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", environment.get("COMPAT_CA"));
        if (!mechanism.isEmpty()) {
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            String password = right ? environment.get("COMPAT_PASSWORD") : "not the password";
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", String.format("org.apache.kafka.common.security.%s required username=\"%s\" password=\"%s\";",
                module, environment.get("COMPAT_USER"), password));
        }
        return new Cases(client, environment.get(mechanism.isEmpty() ? "COMPAT_TLS" : "COMPAT_SASL"), settings);
    }

    private void tls() throws Exception {
        Cases encrypted = connected("", true);
        encrypted.many("tls", Map.of());
        encrypted.readTenAndCommit(name("tls-group"));
        encrypted.goOn(name("tls-group"));
    }

    /** Whoever logs in by the one mechanism writes, and by the other one goes on reading; with another password nobody gets in. */
    private void sasl(String of, String first, String second) throws Exception {
        Cases writes = connected(first, true);
        writes.many(of, Map.of());
        writes.readTenAndCommit(name(of + "-group"));
        connected(second, true).goOn(name(of + "-group"));
        for (String mechanism : Set.copyOf(List.of(first, second))) {
            try {
                connected(mechanism, false).admin.listTopics().names().get();
            } catch (ExecutionException error) {
                Answers.expect("the word on a wrong password by " + mechanism, error.getCause().getClass(), SaslAuthenticationException.class);
                continue;
            }
            throw new AssertionError("any password will do");
        }
    }

    private void staticMember() throws Exception {
        String topic = name("static-member");
        create(topic, 4, Map.of());
        int[] rebalances = {0};
        Map<String, Object> settings = Map.of("session.timeout.ms", "30000", "group.instance.id", "goes");
        try (KafkaConsumer<byte[], byte[]> stays = consumer(topic, Map.of("session.timeout.ms", "30000", "group.instance.id", "stays"))) {
            stays.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    rebalances[0]++;
                }
            });
            KafkaConsumer<byte[], byte[]> goes = member(topic, settings);
            waitUntil("two partitions each", () -> shares(List.of(stays, goes)).equals(List.of(2, 2)));
            Set<Integer> had = partitions(goes.assignment());
            int seen = rebalances[0];
            // A static member does not leave the group when it closes.
            goes.close();
            try (KafkaConsumer<byte[], byte[]> back = member(topic, settings)) {
                waitUntil("its partitions again", () -> shares(List.of(stays, back)).equals(List.of(2, 2)));
                Answers.expect("partitions after its return", partitions(back.assignment()), had);
                Answers.expect("rebalances of the other", rebalances[0], seen);
            }
        }
    }

    private void adminCreate() throws Exception {
        String topic = name("admin-create");
        create(topic, 3, Map.of("retention.ms", "86400000"));
        try {
            create(topic, 3, Map.of());
        } catch (ExecutionException error) {
            Answers.expect("the refusal", error.getCause().getClass(), TopicExistsException.class);
            return;
        }
        throw new AssertionError("a topic was created twice");
    }

    private String config(String topic, String key) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value();
    }

    private void adminDescribe() throws Exception {
        String topic = name("admin-describe");
        create(topic, 3, Map.of("retention.ms", "86400000"));
        var shown = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
        Answers.expect("partitions", shown.stream().map(one -> one.partition()).collect(Collectors.toList()), List.of(0, 1, 2));
        Answers.expect("leaders", shown.stream().allMatch(one -> one.leader() != null && one.leader().id() >= 0), true);
        Answers.expect("retention.ms", config(topic, "retention.ms"), "86400000");
        Answers.expect("cleanup.policy", config(topic, "cleanup.policy"), "delete");
    }

    private void adminAlterConfig() throws Exception {
        String topic = name("admin-alter-config");
        create(topic);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), List.of(set))).all().get();
        Answers.expect("retention.ms", config(topic, "retention.ms"), "3600000");
    }

    private void adminGrow() throws Exception {
        String topic = name("admin-grow");
        create(topic);
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        Answers.expect("partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size(), 3);
    }

    private long offset(String topic, OffsetSpec spec) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(partition, spec)).all().get().get(partition).offset();
    }

    private void adminListOffsets() throws Exception {
        String topic = name("admin-list-offsets");
        create(topic);
        produceNumbered(topic, 10);
        Answers.expect("the first offset", offset(topic, OffsetSpec.earliest()), 0L);
        Answers.expect("the last offset", offset(topic, OffsetSpec.latest()), 10L);
    }

    /** Offsets of a group that has no members. */
    private void storeOffset(String topic, long at) throws Exception {
        admin.alterConsumerGroupOffsets(topic, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(at))).all().get();
    }

    private void adminResetOffsets() throws Exception {
        String topic = name("admin-reset-offsets");
        readTenAndCommit(topic);
        storeOffset(topic, 3);
        Answers.expect("the stored offset", admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get()
            .get(new TopicPartition(topic, 0)).offset(), 3L);
        try (KafkaConsumer<byte[], byte[]> member = member(topic, Map.of())) {
            Answers.expect("the first record", values(take(member, 1)).get(0), "1:3");
        }
    }

    private void adminDeleteRecords() throws Exception {
        String topic = name("admin-delete-records");
        TopicPartition partition = new TopicPartition(topic, 0);
        create(topic);
        produceNumbered(topic, 10);
        var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5))).lowWatermarks().get(partition).get();
        Answers.expect("the answered offset", deleted.lowWatermark(), 5L);
        Answers.expect("the first offset", offset(topic, OffsetSpec.earliest()), 5L);
    }

    private void adminDeleteTopic() throws Exception {
        String topic = name("admin-delete-topic");
        create(topic);
        Answers.expect("listed before", admin.listTopics().names().get().contains(topic), true);
        admin.deleteTopics(List.of(topic)).all().get();
        waitUntil("gone from the list", () -> !admin.listTopics().names().get().contains(topic));
    }

    private boolean isListed(String group) throws Exception {
        return admin.listConsumerGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group));
    }

    private void adminListGroups() throws Exception {
        String topic = name("admin-list-groups");
        create(topic);
        storeOffset(topic, 0);
        Answers.expect("listed", isListed(topic), true);
    }

    private void adminDescribeGroup() throws Exception {
        String topic = name("admin-describe-group");
        create(topic, 2, Map.of());
        try (KafkaConsumer<byte[], byte[]> member = member(topic, Map.of("client.id", "described"))) {
            waitUntil("its partitions", () -> shares(List.of(member)).equals(List.of(2)));
            ConsumerGroupDescription shown = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
            Answers.expect("state", shown.state().toString(), "Stable");
            Answers.expect("members", shown.members().stream().map(one -> one.clientId()).collect(Collectors.toList()), List.of("described"));
            Answers.expect("its partitions", partitions(shown.members().iterator().next().assignment().topicPartitions()), Set.of(0, 1));
        }
    }

    private void adminDeleteGroup() throws Exception {
        String topic = name("admin-delete-group");
        create(topic);
        storeOffset(topic, 0);
        Answers.expect("listed before", isListed(topic), true);
        admin.deleteConsumerGroups(List.of(topic)).all().get();
        Answers.expect("listed after", isListed(topic), false);
    }
}
