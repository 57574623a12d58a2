// SPDX-License-Identifier: Apache-2.0

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.restartstrategy.RestartStrategies;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.pulsar.sink.PulsarSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A Flink job in this process: the numbers below a limit, through one failure, to a topic, exactly once.
 *
 * <p>Its arguments are the service URL, the web URL, the topic and the limit. It prints whether it failed and how many
 * completed checkpoints its tasks saw.
 */
public final class FlinkSink {
    private static final int PARALLELISM = 2;
    private static final long CHECKPOINT_MILLIS = 200;
    private static final int RESTARTS = 100;  // one for the failure, others while a broker is away
    private static final long RESTART_MILLIS = 100;

    private FlinkSink() {}

    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM);
        flink.enableCheckpointing(CHECKPOINT_MILLIS);
        flink.setRestartStrategy(RestartStrategies.fixedDelayRestart(RESTARTS, RESTART_MILLIS));
        PulsarSink<String> sink = PulsarSink.builder()
                .setServiceUrl(arguments[0])
                .setAdminUrl(arguments[1])
                .setTopics(arguments[2])
                .setSerializationSchema(new SimpleStringSchema())
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .build();
        flink.fromSequence(0, Long.parseLong(arguments[3]) - 1).map(new FailingOnce()).sinkTo(sink);
        flink.execute();
        System.out.println(FailingOnce.FAILED.get() + " " + FailingOnce.CHECKPOINTS.get());
    }

    /** Fails behind a checkpoint, with rows that the next one would have had. */
    private static final class FailingOnce implements MapFunction<Long, String>, CheckpointListener {
        static final AtomicBoolean FAILED = new AtomicBoolean();
        static final AtomicInteger CHECKPOINTS = new AtomicInteger();
        private static final int ROWS_BEHIND_CHECKPOINT = 50;
        private int rows;

        @Override
        public String map(Long number) throws Exception {
            Thread.sleep(1);  // so that a run has some checkpoints
            rows++;
            if (CHECKPOINTS.get() > 0 && rows > ROWS_BEHIND_CHECKPOINT && FAILED.compareAndSet(false, true)) {
                throw new IllegalStateException("the failure of this job, at row " + number);
            }
            return String.valueOf(number);
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            rows = 0;
            CHECKPOINTS.incrementAndGet();
        }
    }
}
