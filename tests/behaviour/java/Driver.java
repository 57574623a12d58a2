// SPDX-License-Identifier: Apache-2.0

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.transaction.TransactionImpl;

/**
 * The official Java client behind a line protocol: one JSON object a line on stdin, one answer a line on stdout.
 *
 * <p>A request is {@code {"id": n, "op": name, ...}}; its answer {@code {"id": n, "result": ...}} or {@code {"id": n,
 * "error": kind, "text": ...}}. Objects stay here and are named by numbers. Each request runs on a thread of its own, so
 * one that waits holds up nobody; answers come in any order. It ends with its stdin.
 *
 * <p>Compiled once, it runs with older clients too: what a request does not ask for is not said to the builders, and a
 * method that the client does not have is answered with the error {@code CannotExpress}.
 */
public final class Driver {
    private final ObjectMapper json = new ObjectMapper();
    private final Map<Integer, Object> objects = new ConcurrentHashMap<>();
    private final Map<Integer, JsonNode> schemas = new ConcurrentHashMap<>();
    private final Map<String, Integer> clients = new ConcurrentHashMap<>();
    private final AtomicInteger numbers = new AtomicInteger();
    private final PrintStream answers;

    private Driver(PrintStream answers) {
        this.answers = answers;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);  // whatever logs must not answer
        new Driver(answers).serve();
        System.exit(0);
    }

    private void serve() throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = json.readTree(line);
            threads.execute(() -> answer(request));
        }
    }

    private void answer(JsonNode request) {
        ObjectNode answer = json.createObjectNode().put("id", request.get("id").asInt());
        try {
            answer.set("result", perform(request));
        } catch (Throwable thrown) {
            Throwable failure = unwrapped(thrown);
            String text = String.valueOf(failure.getMessage());
            boolean tooOld = failure instanceof LinkageError || text.startsWith("No enum constant");
            answer.put("error", tooOld ? "CannotExpress" : failure.getClass().getSimpleName()).put("text", text);
        }
        synchronized (answers) {
            answers.println(answer);
            answers.flush();
        }
    }

    private static Throwable unwrapped(Throwable thrown) {
        boolean wraps = thrown instanceof CompletionException || thrown instanceof ExecutionException;
        return wraps && thrown.getCause() != null ? unwrapped(thrown.getCause()) : thrown;
    }

    private JsonNode perform(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "client":
                return client(request);
            case "close":
                return close(request.get("objects"));
            case "producer":
                return producer(request);
            case "send":
                return idOf(message(object(request, "producer"), request, request).send());
            case "transaction":
                return kept(Transactions.begun(object(request, "client"), request.get("timeout_ms").asLong()));
            case "commit":
                Transactions.commit(object(request, "transaction"));
                return null;
            case "abort":
                Transactions.abort(object(request, "transaction"));
                return null;
            case "send_together":
                return sendTogether(request);
            case "consumer":
                return keptWithSchema(consumer(request), request);
            case "reader":
                return reader(request);
            case "table_view":
                return keptWithSchema(this.<PulsarClient>object(request, "client").newTableView(schema(request))
                        .topic(text(request, "topic")).create(), request);
            case "table":
                return table(object(request, "view"), schemas.containsKey(request.get("view").asInt()));
            case "read":
                return messageOf(this.<Reader<Object>>object(request, "reader")
                        .readNext(request.get("timeout_ms").asInt(), TimeUnit.MILLISECONDS), request.get("reader"));
            case "has_message_available":
                return json.getNodeFactory()
                        .booleanNode(this.<Reader<Object>>object(request, "reader").hasMessageAvailable());
            default:
                return consume(object(request, "consumer"), request);
        }
    }

    private JsonNode consume(Consumer<Object> consumer, JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "receive":
                return messageOf(request.hasNonNull("timeout_ms")
                        ? consumer.receive(request.get("timeout_ms").asInt(), TimeUnit.MILLISECONDS)
                        : consumer.receive(), request.get("consumer"));
            case "ack":
                Message<Object> one = object(request, "message");
                if (request.hasNonNull("transaction")) {
                    Transactions.acknowledge(consumer, one, object(request, "transaction"));
                } else {
                    consumer.acknowledge(one);
                }
                break;
            case "ack_cumulative":
                Message<Object> last = object(request, "message");
                if (request.hasNonNull("transaction")) {
                    Transactions.acknowledgeCumulative(consumer, last, object(request, "transaction"));
                } else {
                    consumer.acknowledgeCumulative(last);
                }
                break;
            case "nack":
                consumer.negativeAcknowledge(this.<Message<Object>>object(request, "message"));
                break;
            case "nack_twice":
                Message<Object> refused = object(request, "message");
                consumer.negativeAcknowledge(refused);
                consumer.negativeAcknowledge(refused);
                break;
            case "reconsume_later":
                consumer.reconsumeLater(this.<Message<Object>>object(request, "message"), properties(request),
                        request.get("delay_ms").asLong(), TimeUnit.MILLISECONDS);
                break;
            case "reconsume_later_cumulative":
                consumer.reconsumeLaterCumulative(this.<Message<Object>>object(request, "message"),
                        request.get("delay_ms").asLong(), TimeUnit.MILLISECONDS);
                break;
            case "redeliver_all":
                consumer.redeliverUnacknowledgedMessages();
                break;
            case "seek":
                if (request.has("time_ms")) {
                    consumer.seek(request.get("time_ms").asLong());
                } else {
                    consumer.seek(id(text(request, "target")));
                }
                break;
            case "pause":
                consumer.pause();
                break;
            case "resume":
                consumer.resume();
                break;
            case "unsubscribe":
                if (request.get("force").asBoolean()) {
                    consumer.unsubscribe(true);
                } else {
                    consumer.unsubscribe();
                }
                break;
            case "last_message_id":
                return idOf(consumer.getLastMessageIds().get(0));
            case "has_ended":
                return json.getNodeFactory().booleanNode(consumer.hasReachedEndOfTopic());
            default:
                throw new IllegalArgumentException("unknown operation " + request.get("op"));
        }
        return null;
    }

    /** One for each address and access, for ever: it takes two seconds to close one. One more for transactions. */
    private synchronized JsonNode client(JsonNode request) throws Exception {
        boolean transactions = request.path("transactions").asBoolean();
        String url = text(request, "url");
        JsonNode access = request.path("access");
        String name = url + transactions + access;
        Integer known = clients.get(name);
        if (known != null) {
            return json.getNodeFactory().numberNode(known);
        }
        ClientBuilder builder = PulsarClient.builder().serviceUrl(url).operationTimeout(15, TimeUnit.SECONDS);
        if (transactions) {
            builder.enableTransaction(true);
        }
        if (access.hasNonNull("trust_certs")) {
            builder.tlsTrustCertsFilePath(text(access, "trust_certs")).enableTlsHostnameVerification(true);
        }
        if (access.hasNonNull("plugin")) {
            builder.authentication(access.get("plugin").get(0).asText(), access.get("plugin").get(1).asText());
        }
        JsonNode made = kept(builder.build());
        clients.put(name, made.asInt());
        return made;
    }

    private JsonNode close(JsonNode numbers) throws Exception {
        for (JsonNode number : numbers) {
            if (objects.remove(number.asInt()) instanceof AutoCloseable object) {
                object.close();
            }
        }
        return null;
    }

    private JsonNode producer(JsonNode request) throws Exception {
        ProducerBuilder<Object> builder = this.<PulsarClient>object(request, "client").newProducer(schema(request))
                .topic(text(request, "topic"))
                .enableBatching(request.get("batching").asBoolean())
                .batchingMaxPublishDelay(60, TimeUnit.SECONDS)
                .batchingMaxMessages(1000)
                .messageRoutingMode(MessageRoutingMode.RoundRobinPartition)
                .compressionType(CompressionType.valueOf(text(request, "compression").toUpperCase()));
        if (request.get("chunking").asBoolean()) {
            builder.enableChunking(true);
        }
        if (!text(request, "access_mode").equals("Shared")) {
            builder.accessMode(ProducerAccessMode.valueOf(text(request, "access_mode")));
        }
        if (request.get("batching_by_key").asBoolean()) {
            builder.batcherBuilder(BatcherBuilder.KEY_BASED);
        }
        if (request.hasNonNull("name")) {
            builder.producerName(text(request, "name"));
        }
        if (request.hasNonNull("hashing_scheme")) {
            builder.hashingScheme(HashingScheme.valueOf(text(request, "hashing_scheme")));
        }
        if (request.hasNonNull("chunk_bytes")) {
            builder.chunkMaxMessageSize(request.get("chunk_bytes").asInt());
        }
        Producer<Object> producer = builder.create();
        ObjectNode made = json.createObjectNode();
        made.put("name", producer.getProducerName()).put("last_sequence_id", producer.getLastSequenceId());
        return made.set("object", keptWithSchema(producer, request));
    }

    /** The message of {@code fields}; {@code request} names the producer, and the transaction. */
    private TypedMessageBuilder<Object> message(Producer<Object> producer, JsonNode request, JsonNode fields)
            throws Exception {
        TypedMessageBuilder<Object> message = newMessage(producer, request, fields);
        message.properties(properties(fields));
        message.value(value(request, fields));
        if (fields.hasNonNull("key")) {
            message.key(text(fields, "key"));
        }
        if (fields.hasNonNull("key_bytes")) {
            message.keyBytes(Base64.getDecoder().decode(text(fields, "key_bytes")));
        }
        if (fields.hasNonNull("ordering_key")) {
            message.orderingKey(text(fields, "ordering_key").getBytes(StandardCharsets.UTF_8));
        }
        if (fields.hasNonNull("event_time_ms")) {
            message.eventTime(fields.get("event_time_ms").asLong());
        }
        if (fields.hasNonNull("sequence_id")) {
            message.sequenceId(fields.get("sequence_id").asLong());
        }
        if (fields.hasNonNull("deliver_after_ms")) {
            message.deliverAfter(fields.get("deliver_after_ms").asLong(), TimeUnit.MILLISECONDS);
        }
        return message;
    }

    private TypedMessageBuilder<Object> newMessage(Producer<Object> producer, JsonNode request, JsonNode fields)
            throws Exception {
        boolean within = request.hasNonNull("transaction");
        if (fields.hasNonNull("schema")) {
            Schema<Object> own = schema(fields);
            return within ? Transactions.of(producer, own, object(request, "transaction")) : producer.newMessage(own);
        }
        return within ? Transactions.of(producer, object(request, "transaction")) : producer.newMessage();
    }

    /** The value of a message: of its schema, of its producer's, or bytes. */
    private Object value(JsonNode request, JsonNode fields) throws Exception {
        if (!fields.hasNonNull("value")) {
            return null;
        }
        byte[] value = Base64.getDecoder().decode(text(fields, "value"));
        JsonNode own = fields.get("schema");
        JsonNode choice = own == null || own.isNull() ? schemas.get(request.get("producer").asInt()) : own;
        return choice == null ? value : Schemas.value(choice, json.readTree(value));
    }

    /** That of bytes where the request names none. */
    @SuppressWarnings("unchecked")
    private static Schema<Object> schema(JsonNode request) throws Exception {
        return (Schema<Object>) (Schema<?>) (isTyped(request) ? Schemas.of(request.get("schema")) : Schema.BYTES);
    }

    private static boolean isTyped(JsonNode request) {
        return request.hasNonNull("schema") && !request.get("schema").get("type").asText().equals("BYTES");
    }

    private JsonNode keptWithSchema(Object object, JsonNode request) {
        JsonNode number = kept(object);
        if (isTyped(request)) {
            schemas.put(number.asInt(), request.get("schema"));
        }
        return number;
    }

    private JsonNode sendTogether(JsonNode request) throws Exception {
        Producer<Object> producer = object(request, "producer");
        if (request.hasNonNull("transaction")) {
            Transactions.join(producer, object(request, "transaction"));
        }
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (JsonNode fields : request.get("messages")) {
            sent.add(message(producer, request, fields).sendAsync());
        }
        producer.flush();
        ArrayNode ids = json.createArrayNode();
        for (CompletableFuture<MessageId> each : sent) {
            ids.add(idOf(each.get()));
        }
        return ids;
    }

    private Consumer<Object> consumer(JsonNode request) throws Exception {
        ConsumerBuilder<Object> builder = this.<PulsarClient>object(request, "client").newConsumer(schema(request))
                .subscriptionName(text(request, "subscription"))
                .subscriptionType(SubscriptionType.valueOf(text(request, "type")))
                .subscriptionInitialPosition(SubscriptionInitialPosition.valueOf(text(request, "initial_position")))
                .receiverQueueSize(request.get("queue_size").asInt())
                .priorityLevel(request.get("priority").asInt())
                .readCompacted(request.path("compacted").asBoolean())
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS);
        long nackDelayMillis = request.get("nack_delay_ms").asLong();
        orWithout(() -> builder.negativeAckRedeliveryDelay(nackDelayMillis, TimeUnit.MILLISECONDS));
        orWithout(() -> builder.enableBatchIndexAcknowledgment(request.get("batch_index_acks").asBoolean()));
        if (request.hasNonNull("pattern")) {
            builder.topicsPattern(text(request, "pattern"));
            boolean looks = request.get("looks").asBoolean();
            builder.subscriptionTopicsMode(
                    looks ? RegexSubscriptionMode.AllTopics : RegexSubscriptionMode.PersistentOnly);
            builder.patternAutoDiscoveryPeriod(looks ? 1 : 3600, TimeUnit.SECONDS);
        } else {
            request.get("topics").forEach(topic -> builder.topic(topic.asText()));
        }
        if (request.hasNonNull("name")) {
            builder.consumerName(text(request, "name"));
        }
        if (request.hasNonNull("ack_timeout_ms")) {
            builder.ackTimeout(request.get("ack_timeout_ms").asLong(), TimeUnit.MILLISECONDS);
            builder.ackTimeoutTickTime(100, TimeUnit.MILLISECONDS);
        }
        if (request.get("retry").asBoolean()) {
            builder.enableRetry(true);
        }
        if (request.hasNonNull("max_redeliver_count")) {
            DeadLetterPolicy.DeadLetterPolicyBuilder policy = DeadLetterPolicy.builder()
                    .maxRedeliverCount(request.get("max_redeliver_count").asInt());
            if (request.hasNonNull("dead_letter_topic")) {
                policy.deadLetterTopic(text(request, "dead_letter_topic"));
            }
            if (request.hasNonNull("dead_letter_subscription")) {
                policy.initialSubscriptionName(text(request, "dead_letter_subscription"));
            }
            builder.deadLetterPolicy(policy.build());
        }
        boolean plain = !request.hasNonNull("ranges") && !request.get("relaxed_order").asBoolean();
        if (text(request, "type").equals("Key_Shared") && !plain) {
            KeyShared.choose(builder, request);
        }
        return builder.subscribe();
    }

    /** Say what a client that is too old to hear it need not do: no behaviour can tell the difference by this alone. */
    private static void orWithout(Runnable call) {
        try {
            call.run();
        } catch (LinkageError unknown) {
            System.err.println("without " + unknown.getMessage());
        }
    }

    /** A class of its own, which is not loaded for clients that do not have the type. */
    private static final class KeyShared {
        static void choose(ConsumerBuilder<Object> builder, JsonNode request) {
            if (!request.hasNonNull("ranges")) {
                builder.keySharedPolicy(KeySharedPolicy.autoSplitHashRange()
                        .setAllowOutOfOrderDelivery(request.get("relaxed_order").asBoolean()));
                return;
            }
            List<Range> ranges = new ArrayList<>();
            request.get("ranges").forEach(each -> ranges.add(Range.of(each.get(0).asInt(), each.get(1).asInt())));
            builder.keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(ranges));
        }
    }

    /** A class of its own, which is not loaded for clients that do not have the type. */
    private static final class Transactions {
        static Transaction begun(PulsarClient client, long timeoutMillis) throws Exception {
            return client.newTransaction().withTransactionTimeout(timeoutMillis, TimeUnit.MILLISECONDS).build().get();
        }

        static TypedMessageBuilder<Object> of(Producer<Object> producer, Transaction transaction) {
            return producer.newMessage(transaction);
        }

        static TypedMessageBuilder<Object> of(Producer<Object> producer, Schema<Object> own, Transaction transaction) {
            return producer.newMessage(own, transaction);
        }

        /**
         * The first message of a topic waits until the coordinator knows of the topic, and a flush does not wait for it: a
         * batch would stay open.
         */
        static void join(Producer<Object> producer, Transaction transaction) throws Exception {
            ((TransactionImpl) transaction).registerProducedTopic(producer.getTopic()).get();
        }

        static void acknowledge(Consumer<Object> consumer, Message<Object> message, Transaction transaction)
                throws Exception {
            consumer.acknowledgeAsync(message.getMessageId(), transaction).get();
        }

        static void acknowledgeCumulative(Consumer<Object> consumer, Message<Object> message, Transaction transaction)
                throws Exception {
            consumer.acknowledgeCumulativeAsync(message.getMessageId(), transaction).get();
        }

        static void commit(Transaction transaction) throws Exception {
            transaction.commit().get();
        }

        static void abort(Transaction transaction) throws Exception {
            transaction.abort().get();
        }
    }

    private JsonNode reader(JsonNode request) throws Exception {
        ReaderBuilder<Object> builder = this.<PulsarClient>object(request, "client").newReader(schema(request))
                .topic(text(request, "topic"))
                .readCompacted(request.path("compacted").asBoolean());
        if (request.get("rollback_s").asInt() > 0) {
            builder.startMessageFromRollbackDuration(request.get("rollback_s").asInt(), TimeUnit.SECONDS);
        } else {
            builder.startMessageId(id(text(request, "start")));
        }
        if (request.get("inclusive").asBoolean()) {
            builder.startMessageIdInclusive();
        }
        return keptWithSchema(builder.create(), request);
    }

    private JsonNode table(TableView<Object> view, boolean typed) throws Exception {
        view.refreshAsync().get();
        ObjectNode rows = json.createObjectNode();
        view.forEach((key, value) -> rows.put(key, told(value, typed)));
        return rows;
    }

    private static String told(Object value, boolean typed) {
        byte[] bytes = typed ? Schemas.told(value) : value == null ? new byte[0] : (byte[]) value;
        return Base64.getEncoder().encodeToString(bytes);
    }

    /** {@code source}: the number of its consumer or reader. */
    private JsonNode messageOf(Message<Object> message, JsonNode source) {
        if (message == null) {
            return null;
        }
        ObjectNode seen = json.createObjectNode();
        seen.set("object", kept(message));
        seen.set("message_id", idOf(message.getMessageId()));
        seen.put("value", told(message.getValue(), schemas.containsKey(source.asInt())));
        seen.put("data", message.getData());
        orWithout(() -> seen.put("schema_version", message.getSchemaVersion()));
        seen.put("key", message.getKey());
        orWithout(() -> seen.put("topic", message.getTopicName()));
        orWithout(() -> seen.put("ordering_key",
                message.hasOrderingKey() ? new String(message.getOrderingKey(), StandardCharsets.UTF_8) : null));
        orWithout(() -> seen.put("redelivery_count", message.getRedeliveryCount()));
        seen.put("publish_time_ms", message.getPublishTime());
        seen.put("event_time_ms", message.getEventTime());
        seen.put("producer_name", message.getProducerName());
        seen.set("properties", json.valueToTree(message.getProperties()));
        return seen;
    }

    private JsonNode idOf(MessageId id) {
        return json.getNodeFactory().textNode(Base64.getEncoder().encodeToString(id.toByteArray()));
    }

    private static MessageId id(String bytes) throws Exception {
        switch (bytes) {
            case "earliest":
                return MessageId.earliest;
            case "latest":
                return MessageId.latest;
            default:
                return MessageId.fromByteArray(Base64.getDecoder().decode(bytes));
        }
    }

    private JsonNode kept(Object object) {
        int number = numbers.incrementAndGet();
        objects.put(number, object);
        return json.getNodeFactory().numberNode(number);
    }

    @SuppressWarnings("unchecked")
    private <T> T object(JsonNode request, String name) {
        Object found = objects.get(request.get(name).asInt());
        if (found == null) {
            throw new IllegalArgumentException("there is no " + name + " " + request.get(name));
        }
        return (T) found;
    }

    private Map<String, String> properties(JsonNode request) {
        Map<String, String> found = new ConcurrentHashMap<>();
        JsonNode given = request.get("properties");
        if (given != null && !given.isNull()) {
            given.fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        }
        return found;
    }

    private static String text(JsonNode request, String name) {
        return request.get(name).asText();
    }
}
