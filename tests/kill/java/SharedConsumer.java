// SPDX-License-Identifier: Apache-2.0

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * One ordinary consumer of a shared subscription, by the official Java client: it counts how often it is given each number.
 *
 * <p>Arguments: service URL, topic, subscription, how many numbers there are, and the file for the counts, a byte each. It
 * says on stdout how many messages it has processed, a number a line, and ends when it is sent a line and nothing comes.
 */
public final class SharedConsumer {
    private static final int TELL_EVERY = 20_000;

    private SharedConsumer() {}

    public static void main(String[] arguments) throws Exception {
        byte[] counts = new byte[Integer.parseInt(arguments[3])];
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Consumer<byte[]> consumer = client.newConsumer()
                        .topic(arguments[1])
                        .subscriptionName(arguments[2])
                        .subscriptionType(SubscriptionType.Shared)
                        .subscribe()) {
            System.out.println(0);
            count(consumer, counts);
        }
        Files.write(Path.of(arguments[4]), counts);
        System.exit(0);
    }

    private static void count(Consumer<byte[]> consumer, byte[] counts) throws Exception {
        long processed = 0;
        long told = 0;
        while (true) {
            Message<byte[]> message = consumer.receive(200, TimeUnit.MILLISECONDS);
            if (message == null && System.in.available() > 0) {
                return;
            }
            if (message != null) {
                counts[(int) ByteBuffer.wrap(message.getData()).order(ByteOrder.LITTLE_ENDIAN).getLong()]++;
                consumer.acknowledgeAsync(message);
                processed++;
            }
            if (processed - told >= TELL_EVERY || (message == null && processed > told)) {
                System.out.println(processed);
                told = processed;
            }
        }
    }
}
