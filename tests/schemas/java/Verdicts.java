// SPDX-License-Identifier: Apache-2.0
// The verdicts of Apache Pulsar's own classes about pairs of schemas: a JSON object a line on stdin, one a line on stdout.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.Schema;
import org.apache.pulsar.broker.service.schema.AvroSchemaCompatibilityCheck;
import org.apache.pulsar.broker.service.schema.validator.SchemaDataValidator;
import org.apache.pulsar.broker.service.schema.validator.StructSchemaDataValidator;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.protocol.schema.SchemaData;
import org.apache.pulsar.common.schema.SchemaType;

public final class Verdicts {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Verdicts() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // where logs go
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            JsonNode pair = JSON.readTree(line);
            answers.println(JSON.writeValueAsString(verdict(pair.get("old").asText(), pair.get("new").asText())));
        }
    }

    private static ObjectNode verdict(String old, String fresh) {
        ObjectNode verdict = JSON.createObjectNode();
        boolean valid = valid(old, verdict, "old_error") & valid(fresh, verdict, "new_error");
        verdict.put("valid", valid);
        verdict.put("backward", fits(old, fresh, SchemaCompatibilityStrategy.BACKWARD, verdict));
        verdict.put("forward", fits(old, fresh, SchemaCompatibilityStrategy.FORWARD, verdict));
        verdict.put("full", fits(old, fresh, SchemaCompatibilityStrategy.FULL, verdict));
        verdict.put("same", same(old, fresh));
        return verdict;
    }

    private static boolean valid(String text, ObjectNode verdict, String key) {
        try {
            SchemaDataValidator.validateSchemaData(data(text));
            return true;
        } catch (Exception refused) {
            verdict.put(key, refused.toString());
            return false;
        }
    }

    private static boolean fits(String old, String fresh, SchemaCompatibilityStrategy strategy, ObjectNode verdict) {
        try {
            new AvroSchemaCompatibilityCheck().checkCompatible(data(old), data(fresh), strategy);
            return true;
        } catch (Throwable refused) {
            verdict.put(strategy + "_error", refused.toString());
            return false;
        }
    }

    private static boolean same(String old, String fresh) {
        try {
            return parsed(old).equals(parsed(fresh));
        } catch (Exception refused) {
            return false;
        }
    }

    private static Schema parsed(String text) {
        Schema.Parser parser = new Schema.Parser(StructSchemaDataValidator.COMPATIBLE_NAME_VALIDATOR);
        parser.setValidateDefaults(false);
        return parser.parse(text);
    }

    private static SchemaData data(String text) {
        return SchemaData.builder().type(SchemaType.AVRO).data(text.getBytes(StandardCharsets.UTF_8)).build();
    }
}
