# SPDX-License-Identifier: Apache-2.0
"""What the admin REST shows of topics with transactions."""

from __future__ import annotations

import httpx

from broker_core.testing.raw_client import must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.transaction_client import OK, TransactionClient, entry


def test_counts_and_single_entries(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """9.7.7, 9.4.5: entries that no reader gets are shown to administrators, who are told why."""
    with TransactionClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, entry("n0"))
        ids = [client.next_command().send_receipt.message_id]
        names = [client.new(3) for _ in range(3)]
        for number, name in enumerate(names, start=1):
            ids.append(client.send_in(name, f"m{number}", sequence_id=number).send_receipt.message_id)
        assert client.end(names[0], commit=True).code == OK
        assert client.end(names[1], commit=False).code == OK
        stats = http.get(f"{path}/stats").json()
        assert [stats[f"{kind}TxnCount"] for kind in ("ongoing", "committed", "aborted")] == [1, 1, 1]
        assert http.get(f"{path}/lastMessageId").json()["entryId"] == 1
        shown = []
        for each in ids:
            answer = http.get(f"{path}/ledger/{each.ledgerId}/entry/{each.entryId}")
            headers = {name.lower(): value for name, value in answer.headers.items()}
            ours = [headers.get(f"x-pulsar-txn{name}") for name in ("id-most-bits", "-aborted", "-uncommitted")]
            least = headers.get("x-pulsar-txnid-least-bits")
            shown.append((answer.text, least is None or int(least) == names[each.entryId - 1].least_bits, *ours))
        assert shown == [
            ("n0", True, None, None, "false"),
            ("m1", True, "3", "false", "false"),
            ("m2", True, "3", "true", "false"),
            ("m3", True, "3", "false", "true"),
        ]
        assert client.ask(client.end_command(names[2], commit=False)).type == BaseCommand.END_TXN_RESPONSE
        assert http.get(f"{path}/lastMessageId").json()["entryId"] == 1
