# SPDX-License-Identifier: Apache-2.0
"""The broker goes and comes back on the same data; clients that stay connected lose nothing."""

from contextlib import closing
from pathlib import Path

import pulsar
import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.compat.conftest import new_client
from tests.compat.receiving import PATIENCE_MS, receive, send_texts, texts


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_acknowledgements_and_messages_survive(tmp_path: Path, end: str) -> None:
    """A receipt means that the message is on the disk; so does a graceful stop for an ack."""
    with RunningBroker(tmp_path / "data") as broker:
        with closing(new_client(broker)) as client:
            consumer = client.subscribe("kept", "s")
            sent = send_texts(client.create_producer("kept", batching_enabled=False), "abcd")
            consumer.acknowledge_cumulative(receive(consumer, 2, ack=False)[-1])
        getattr(broker, end)()
        broker.start()
        with closing(new_client(broker)) as client:
            reader = client.create_reader("kept", pulsar.MessageId.earliest)
            read = [reader.read_next(PATIENCE_MS) for _ in range(4)]
            assert texts(read) == ["a", "b", "c", "d"]
            assert [message.message_id().entry_id() for message in read] == [one.entry_id() for one in sent]
            if end == "stop":
                assert texts(receive(client.subscribe("kept", "s"), 2)) == ["c", "d"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_clients_that_stay_connected_go_on(tmp_path: Path, end: str) -> None:
    """Producers resend what has no receipt, consumers subscribe again; everything arrives, in order, at least once."""
    with RunningBroker(tmp_path / "data") as broker, closing(new_client(broker)) as client:
        consumer = client.subscribe("going-on", "s")
        producer = client.create_producer(
            "going-on", batching_enabled=False, block_if_queue_full=True, send_timeout_millis=PATIENCE_MS
        )
        words = [str(number) for number in range(600)]
        confirmed: list[str] = []

        def send(word: str) -> None:
            def on_receipt(result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
                if result == pulsar.Result.Ok:
                    confirmed.append(word)

            producer.send_async(word.encode(), on_receipt)

        for word in words[:300]:
            send(word)
        getattr(broker, end)()
        for word in words[300:]:
            send(word)
        broker.start()
        producer.flush()
        assert confirmed == words
        seen: list[str] = []
        while len(set(seen)) < len(words):
            seen += texts(receive(consumer, 1))
        firsts = list(dict.fromkeys(seen))
        assert firsts == words
