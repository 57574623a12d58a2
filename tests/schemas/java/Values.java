// SPDX-License-Identifier: Apache-2.0
// Values as Apache Pulsar's own classes read and write them: a JSON object a line on stdin, one a line on stdout.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Date;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericEnumSymbol;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.pulsar.broker.service.schema.validator.StructSchemaDataValidator;
import org.apache.pulsar.client.api.schema.Field;
import org.apache.pulsar.client.impl.schema.KeyValueSchemaImpl;
import org.apache.pulsar.client.impl.schema.generic.GenericAvroReader;
import org.apache.pulsar.client.impl.schema.generic.GenericJsonReader;
import org.apache.pulsar.common.schema.KeyValue;

public final class Values {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Values() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // where logs go
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            switch (question.get("kind").asText()) {
                case "avro" -> answer.set("value", avro(question));
                case "json" -> answer.set("value", json(question));
                default -> answer.set("value", written());
            }
        } catch (Throwable refused) {
            answer.put("error", refused + (refused.getCause() == null ? "" : " by " + refused.getCause()));
        }
        return answer;
    }

    private static JsonNode avro(JsonNode question) throws Exception {
        Schema writer = parsed(question.get("writer").asText());
        Schema reader = parsed(question.get("reader").asText());
        byte[] data = question.get("data").binaryValue();
        return shown(new GenericAvroReader(writer, reader, new byte[8]).read(data, 0, data.length).getNativeObject());
    }

    private static JsonNode json(JsonNode question) throws Exception {
        List<Field> fields = new ArrayList<>();
        for (Schema.Field each : parsed(question.get("reader").asText()).getFields()) {
            fields.add(new Field(each.name(), each.pos()));
        }
        byte[] data = question.get("data").binaryValue();
        return (JsonNode) new GenericJsonReader(fields).read(data, 0, data.length).getNativeObject();
    }

    private static Schema parsed(String text) {
        Schema.Parser parser = new Schema.Parser(StructSchemaDataValidator.COMPATIBLE_NAME_VALIDATOR);
        parser.setValidateDefaults(false);
        return parser.parse(text);
    }

    // Numbers by their bits, as JSON's are not exact; bytes in base64.
    private static JsonNode shown(Object value) {
        if (value == null) {
            return JSON.nullNode();
        } else if (value instanceof IndexedRecord record) {
            ObjectNode node = JSON.createObjectNode();
            record.getSchema().getFields().forEach(each -> node.set(each.name(), shown(record.get(each.pos()))));
            return node;
        } else if (value instanceof Collection<?> items) {
            ArrayNode node = JSON.createArrayNode();
            items.forEach(each -> node.add(shown(each)));
            return node;
        } else if (value instanceof Map<?, ?> pairs) {
            ObjectNode node = JSON.createObjectNode();
            pairs.forEach((key, each) -> node.set(key.toString(), shown(each)));
            return node;
        } else if (value instanceof GenericFixed fixed) {
            return JSON.createObjectNode().put("bytes", Base64.getEncoder().encodeToString(fixed.bytes()));
        } else if (value instanceof ByteBuffer bytes) {
            byte[] data = new byte[bytes.remaining()];
            bytes.duplicate().get(data);
            return JSON.createObjectNode().put("bytes", Base64.getEncoder().encodeToString(data));
        } else if (value instanceof Float number) {
            return JSON.createObjectNode().put("float", Float.floatToRawIntBits(number));
        } else if (value instanceof Double number) {
            return JSON.createObjectNode().put("double", Double.doubleToRawLongBits(number));
        } else if (value instanceof CharSequence || value instanceof GenericEnumSymbol<?>) {
            return JSON.getNodeFactory().textNode(value.toString());
        }
        return JSON.valueToTree(value);
    }

    // One value of each primitive type: what it is, and its bytes.
    private static JsonNode written() {
        ArrayNode rows = JSON.createArrayNode();
        write(rows, "STRING", org.apache.pulsar.client.api.Schema.STRING, "é€😀");
        write(rows, "BYTES", org.apache.pulsar.client.api.Schema.BYTES, new byte[] {0, -1});
        for (boolean each : new boolean[] {true, false}) {
            write(rows, "BOOLEAN", org.apache.pulsar.client.api.Schema.BOOL, each);
        }
        for (byte each : new byte[] {Byte.MIN_VALUE, -2, Byte.MAX_VALUE}) {
            write(rows, "INT8", org.apache.pulsar.client.api.Schema.INT8, each);
        }
        for (short each : new short[] {Short.MIN_VALUE, 258, Short.MAX_VALUE}) {
            write(rows, "INT16", org.apache.pulsar.client.api.Schema.INT16, each);
        }
        for (int each : new int[] {Integer.MIN_VALUE, -1, Integer.MAX_VALUE}) {
            write(rows, "INT32", org.apache.pulsar.client.api.Schema.INT32, each);
        }
        for (long each : new long[] {Long.MIN_VALUE, 1, Long.MAX_VALUE}) {
            write(rows, "INT64", org.apache.pulsar.client.api.Schema.INT64, each);
        }
        for (float each : new float[] {1.5f, Float.MIN_VALUE, -Float.MAX_VALUE, Float.POSITIVE_INFINITY}) {
            write(rows, "FLOAT", org.apache.pulsar.client.api.Schema.FLOAT, each);
        }
        for (double each : new double[] {-2.5, Double.MIN_VALUE, Double.MAX_VALUE, Double.NEGATIVE_INFINITY}) {
            write(rows, "DOUBLE", org.apache.pulsar.client.api.Schema.DOUBLE, each);
        }
        writeTimes(rows);
        org.apache.pulsar.client.api.Schema<KeyValue<String, Integer>> pair = KeyValueSchemaImpl.of(
            org.apache.pulsar.client.api.Schema.STRING, org.apache.pulsar.client.api.Schema.INT32);
        rows.addArray().add("KEY_VALUE").add("k=7").add(HexFormat.of().formatHex(pair.encode(new KeyValue<>("k", 7))));
        rows.addArray().add("KEY_VALUE").add("=7").add(HexFormat.of().formatHex(pair.encode(new KeyValue<>(null, 7))));
        rows.addArray().add("KEY_VALUE").add("k=").add(HexFormat.of().formatHex(pair.encode(new KeyValue<>("k", null))));
        return rows;
    }

    private static void writeTimes(ArrayNode rows) {
        for (long each : new long[] {-1, 0, 86_400_000, 1_700_000_000_123L, 253_402_300_799_999L}) {
            write(rows, "DATE", org.apache.pulsar.client.api.Schema.DATE, new Date(each), each);
            write(rows, "TIMESTAMP", org.apache.pulsar.client.api.Schema.TIMESTAMP, new java.sql.Timestamp(each), each);
            write(rows, "TIME", org.apache.pulsar.client.api.Schema.TIME, new java.sql.Time(each), each);
        }
        for (String each : new String[] {"1969-12-31T23:59:59.999999999Z", "2023-11-14T22:13:20.123456789Z"}) {
            write(rows, "INSTANT", org.apache.pulsar.client.api.Schema.INSTANT, Instant.parse(each));
        }
        for (String each : new String[] {"0001-01-01", "1969-12-31", "2000-01-01", "9999-12-31"}) {
            write(rows, "LOCAL_DATE", org.apache.pulsar.client.api.Schema.LOCAL_DATE, LocalDate.parse(each));
        }
        for (String each : new String[] {"00:00", "00:00:01", "23:59:59.999999999"}) {
            write(rows, "LOCAL_TIME", org.apache.pulsar.client.api.Schema.LOCAL_TIME, LocalTime.parse(each));
        }
        for (String each : new String[] {"0001-01-01T00:00", "1969-12-31T23:59:59.999999999", "2000-01-01T00:00:01"}) {
            write(rows, "LOCAL_DATE_TIME", org.apache.pulsar.client.api.Schema.LOCAL_DATE_TIME, LocalDateTime.parse(each));
        }
    }

    private static <T> void write(ArrayNode rows, String type, org.apache.pulsar.client.api.Schema<T> schema, T value) {
        write(rows, type, schema, value, value instanceof byte[] data ? HexFormat.of().formatHex(data) : value);
    }

    private static <T> void write(
            ArrayNode rows, String type, org.apache.pulsar.client.api.Schema<T> schema, T value, Object said) {
        rows.addArray().add(type).add(said.toString()).add(HexFormat.of().formatHex(schema.encode(value)));
    }
}
