import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TransactionalIdAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * What users of transactions see, and the setting with which their programs work without: {@code Transactions BOOTSTRAP CASE...} prints one JSON
 * line for each case.
 */
public final class Transactions {
    /** A cluster of Flink inside this virtual machine starts and ends in it. */
    private static final Duration CASE_LIMIT = Duration.ofSeconds(240);

    private final String bootstrap;
    private final Map<String, Answers.Case> cases = new LinkedHashMap<>();

    private Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
        cases.put("producer-refused", this::producerRefused);
        cases.put("spring-refused", this::springRefused);
        cases.put("spring-without", this::springWithout);
        cases.put("flink-exactly-once-refused", () -> refused(() -> flink("flink-refused", DeliveryGuarantee.EXACTLY_ONCE)));
        cases.put("flink-at-least-once", this::flinkAtLeastOnce);
    }

    public static void main(String[] arguments) throws Exception {
        Transactions program = new Transactions(arguments[1]);
        Answers.run("transactions", arguments[0], program.cases, CASE_LIMIT, Arrays.asList(arguments).subList(2, arguments.length));
    }

    /** What runs must fail, with the refusal of the transactional id at the bottom. */
    private static void refused(Answers.Case body) throws Exception {
        try {
            body.run();
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null && !(cause instanceof TransactionalIdAuthorizationException)) {
                cause = cause.getCause();
            }
            // Flink carries exceptions of tasks as text.
            if (!(cause instanceof TransactionalIdAuthorizationException) && !cause.toString().contains("TransactionalIdAuthorizationException")) {
                throw new AssertionError("refused otherwise: " + cause, error);
            }
            return;
        }
        throw new AssertionError("not refused");
    }

    private String topic(String of) throws Exception {
        String name = System.getenv().getOrDefault("COMPAT_RUN", "c") + "-transactions-" + of;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        }
        return name;
    }

    private List<String> read(String topic) {
        List<String> values = new ArrayList<>();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        try (KafkaConsumer<String, String> reader = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            reader.assign(List.of(partition));
            reader.seekToBeginning(List.of(partition));
            long end = reader.endOffsets(List.of(partition)).get(partition);
            while (reader.position(partition) < end) {
                for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(100))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }

    private void producerRefused() throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", topic("producer"));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            long begin = System.nanoTime();
            refused(producer::initTransactions);
            // It is no time-out, of which the client's is 60 s.
            Answers.expect("at once", System.nanoTime() - begin < Duration.ofSeconds(30).toNanos(), true);
        }
    }

    private DefaultKafkaProducerFactory<String, String> factory() {
        return new DefaultKafkaProducerFactory<>(new HashMap<>(Map.of("bootstrap.servers", bootstrap)), new StringSerializer(), new StringSerializer());
    }

    /** As {@code @Transactional} with {@code spring.kafka.producer.transaction-id-prefix} does it. */
    private void springRefused() throws Exception {
        String topic = topic("spring-refused");
        DefaultKafkaProducerFactory<String, String> factory = factory();
        factory.setTransactionIdPrefix(topic);
        KafkaTemplate<String, String> template = new KafkaTemplate<>(factory);
        TransactionTemplate transactions = new TransactionTemplate(new KafkaTransactionManager<>(factory));
        refused(() -> transactions.executeWithoutResult(status -> template.send(topic, "a")));
        factory.destroy();
        Answers.expect("what was written", read(topic), List.of());
    }

    private void springWithout() throws Exception {
        String topic = topic("spring-without");
        DefaultKafkaProducerFactory<String, String> factory = factory();
        KafkaTemplate<String, String> template = new KafkaTemplate<>(factory);
        for (String value : List.of("a", "b", "c")) {
            template.send(topic, value).get();
        }
        factory.destroy();
        Answers.expect("what was written", read(topic), List.of("a", "b", "c"));
    }

    private String flink(String of, DeliveryGuarantee guarantee) throws Exception {
        String topic = topic(of);
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "none");
        settings.setString("taskmanager.memory.network.min", "16mb");
        settings.setString("taskmanager.memory.network.max", "16mb");
        settings.setString("taskmanager.memory.managed.size", "16mb");
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        flink.enableCheckpointing(500);
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setDeliveryGuarantee(guarantee)
            .setTransactionalIdPrefix(topic)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder().setTopic(topic).setValueSerializationSchema(new SimpleStringSchema()).build())
            .build();
        flink.fromSequence(0, 999).map(number -> "value " + number).returns(String.class).sinkTo(sink);
        flink.execute(of);
        return topic;
    }

    private void flinkAtLeastOnce() throws Exception {
        String topic = flink("flink-at-least-once", DeliveryGuarantee.AT_LEAST_ONCE);
        Answers.expect("what was written", read(topic), IntStream.range(0, 1000).mapToObj(number -> "value " + number).collect(Collectors.toList()));
    }
}
