// SPDX-License-Identifier: Apache-2.0

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Date;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.IndexedRecord;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.GenericObject;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericRecordBuilder;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/**
 * Schemas and their values in the words of the Java client. A behaviour names a schema by its type and definition, and a
 * value by its JSON.
 *
 * <p>A class of its own, which is not loaded where no behaviour has a schema, as old clients lack much of it.
 */
final class Schemas {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Schemas() {
    }

    /** The client's schema. That of Avro and JSON is a generic one, whose records need no classes. */
    static Schema<?> of(JsonNode choice) throws Exception {
        String type = choice.get("type").asText();
        switch (type) {
            case "AUTO_CONSUME":
                return Schema.AUTO_CONSUME();
            case "AUTO_PRODUCE_BYTES":
                return Schema.AUTO_PRODUCE_BYTES();
            case "AVRO":
                return isOfClass(choice) ? Schema.AVRO(Order.class) : generic(choice);
            case "JSON":
                return isOfClass(choice) ? Schema.JSON(Order.class) : generic(choice);
            case "PROTOBUF":
                return Schema.PROTOBUF(messageClass(choice));
            case "PROTOBUF_NATIVE":
                return Schema.PROTOBUF_NATIVE(messageClass(choice));
            case "KEY_VALUE":
                KeyValueEncodingType encoding = KeyValueEncodingType.valueOf(choice.get("encoding").asText());
                return Schema.KeyValue(of(choice.get("key")), of(choice.get("value")), encoding);
            case "BOOLEAN":
                return Schema.BOOL;
            default:
                return (Schema<?>) Schema.class.getField(type).get(null);
        }
    }

    private static boolean isOfClass(JsonNode choice) {
        return choice.get("of_class").asBoolean();
    }

    private static GenericSchema<GenericRecord> generic(JsonNode choice) {
        Map<String, String> properties = new HashMap<>();
        choice.get("properties").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
        return Schema.generic(SchemaInfo.builder()
                .name("")
                .type(SchemaType.valueOf(choice.get("type").asText()))
                .schema(choice.get("definition").asText().getBytes(StandardCharsets.UTF_8))
                .properties(properties)
                .build());
    }

    private static Class<Message> messageClass(JsonNode choice) throws Exception {
        @SuppressWarnings("unchecked")
        Class<Message> found = (Class<Message>) Class.forName("com." + choice.get("message").asText());
        return found;
    }

    /** The value that the client is given for the JSON of a behaviour. */
    static Object value(JsonNode choice, JsonNode value) throws Exception {
        if (value.isNull()) {
            return null;
        }
        if (isOfClass(choice)) {
            return MAPPER.treeToValue(value, Order.class);
        }
        switch (choice.get("type").asText()) {
            case "AUTO_PRODUCE_BYTES":
                return HexFormat.of().parseHex(value.asText());
            case "AVRO":
                return avroRecord(choice, value);
            case "JSON":
                GenericRecordBuilder builder = generic(choice).newRecordBuilder();
                value.fields().forEachRemaining(each -> builder.set(each.getKey(), each.getValue()));
                return builder.build();
            case "PROTOBUF":
            case "PROTOBUF_NATIVE":
                return message(choice, value);
            case "KEY_VALUE":
                return new KeyValue<>(
                        value(choice.get("key"), value.get("key")), value(choice.get("value"), value.get("value")));
            case "BOOLEAN":
                return value.asBoolean();
            case "INT8":
                return (byte) value.asInt();
            case "INT16":
                return (short) value.asInt();
            case "INT32":
                return value.asInt();
            case "INT64":
                return value.asLong();
            case "FLOAT":
                return (float) value.asDouble();
            case "DOUBLE":
                return value.asDouble();
            case "DATE":
                return new Date(value.asLong());
            case "TIME":
                return new java.sql.Time(value.asLong());
            case "TIMESTAMP":
                return new java.sql.Timestamp(value.asLong());
            case "INSTANT":
                return Instant.parse(value.asText());
            case "LOCAL_DATE":
                return LocalDate.parse(value.asText());
            case "LOCAL_TIME":
                return LocalTime.parse(value.asText());
            case "LOCAL_DATE_TIME":
                return LocalDateTime.parse(value.asText());
            default:
                return value.asText();
        }
    }

    private static GenericRecord avroRecord(JsonNode choice, JsonNode value) {
        GenericSchema<GenericRecord> schema = generic(choice);
        GenericRecordBuilder builder = schema.newRecordBuilder();
        org.apache.avro.Schema avro = (org.apache.avro.Schema) schema.getNativeSchema().orElseThrow();
        value.fields().forEachRemaining(
                each -> builder.set(each.getKey(), avroValue(avro.getField(each.getKey()).schema(), each.getValue())));
        return builder.build();
    }

    private static Object avroValue(org.apache.avro.Schema schema, JsonNode value) {
        switch (schema.getType()) {
            case UNION:
                return value.isNull() ? null : avroValue(schema.getTypes().get(1), value);
            case RECORD:
                GenericData.Record record = new GenericData.Record(schema);
                schema.getFields().forEach(
                        field -> record.put(field.pos(), avroValue(field.schema(), value.get(field.name()))));
                return record;
            case ARRAY:
                List<Object> items = new ArrayList<>();
                value.forEach(each -> items.add(avroValue(schema.getElementType(), each)));
                return items;
            case MAP:
                Map<String, Object> entries = new HashMap<>();
                value.fields().forEachRemaining(
                        each -> entries.put(each.getKey(), avroValue(schema.getValueType(), each.getValue())));
                return entries;
            case ENUM:
                return new GenericData.EnumSymbol(schema, value.asText());
            case BOOLEAN:
                return value.asBoolean();
            case INT:
                return value.asInt();
            case LONG:
                return value.asLong();
            case FLOAT:
                return (float) value.asDouble();
            case DOUBLE:
                return value.asDouble();
            default:
                return value.asText();
        }
    }

    private static Message message(JsonNode choice, JsonNode value) throws Exception {
        Message.Builder builder =
                (Message.Builder) messageClass(choice).getMethod("newBuilder").invoke(null);
        value.fields().forEachRemaining(each -> {
            FieldDescriptor field = builder.getDescriptorForType().findFieldByName(each.getKey());
            boolean isLong = field.getJavaType() == FieldDescriptor.JavaType.LONG;
            builder.setField(field, isLong ? (Object) each.getValue().asLong() : (Object) each.getValue().asInt());
        });
        return builder.build();
    }

    /** The bytes of a value that a behaviour is told: its JSON, but bytes as they are. */
    static byte[] told(Object value) {
        Object own = value instanceof GenericObject generic ? generic.getNativeObject() : value;
        return own instanceof byte[] bytes ? bytes : json(value).toString().getBytes(StandardCharsets.UTF_8);
    }

    private static JsonNode json(Object value) {
        if (value instanceof GenericRecord record && record.getSchemaType() == SchemaType.JSON) {
            ObjectNode fields = NODES.objectNode();
            JsonNode text = (JsonNode) record.getNativeObject();  // which has all fields that the writer has
            record.getFields().forEach(field -> fields.set(field.getName(), text.get(field.getName())));
            return fields;
        }
        if (value instanceof GenericObject generic) {
            return json(generic.getNativeObject());
        }
        if (value instanceof KeyValue<?, ?> pair) {
            ObjectNode both = NODES.objectNode();
            both.set("key", json(pair.getKey()));
            return both.set("value", json(pair.getValue()));
        }
        if (value instanceof IndexedRecord record) {
            ObjectNode fields = NODES.objectNode();
            record.getSchema().getFields().forEach(field -> fields.set(field.name(), json(record.get(field.pos()))));
            return fields;
        }
        if (value instanceof Message message) {
            ObjectNode fields = NODES.objectNode();
            message.getAllFields().forEach((field, each) -> fields.set(field.getName(), json(each)));
            return fields;
        }
        if (value instanceof Collection<?> items) {
            ArrayNode all = NODES.arrayNode();
            items.forEach(each -> all.add(json(each)));
            return all;
        }
        if (value instanceof Map<?, ?> entries) {
            ObjectNode all = NODES.objectNode();
            entries.forEach((key, each) -> all.set(key.toString(), json(each)));
            return all;
        }
        return plain(value);
    }

    private static JsonNode plain(Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        if (value instanceof JsonNode node) {
            return node;
        }
        if (value instanceof Order order) {
            return MAPPER.valueToTree(order);
        }
        if (value instanceof Boolean truth) {
            return NODES.booleanNode(truth);
        }
        if (value instanceof Float || value instanceof Double) {
            return NODES.numberNode(((Number) value).doubleValue());
        }
        if (value instanceof Number number) {
            return NODES.numberNode(number.longValue());
        }
        if (value instanceof Date date) {
            return NODES.numberNode(date.getTime());
        }
        if (value instanceof ByteBuffer bytes) {
            return NODES.textNode(StandardCharsets.ISO_8859_1.decode(bytes.duplicate()).toString());
        }
        return NODES.textNode(value.toString());
    }
}
