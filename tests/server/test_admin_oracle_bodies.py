# SPDX-License-Identifier: Apache-2.0
"""Request bodies as clients in other languages write them, to our broker and to a real Apache Pulsar.

What both read must be read the same; where our broker refuses what Apache Pulsar guesses at, docs/admin-differences.md
says why.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.server.oracle import Ask, Both, N, T, compare

pytestmark = pytest.mark.pulsar

UNKNOWN: Final = "persistent/{}/unknown/partitions"
METADATA: Final = "application/vnd.partitioned-topic-metadata+json"
"""What clients call an object with partitions and properties; Pulsar takes JSON by itself for the bare number."""

WITH_PROPERTIES: Final = '{"partitions":4,"properties":{"a":1,"b":1.50,"c":true}}'
PARTITIONS: Final = (
    *('"4"', "4.0", "[4]", "true", "{}", '{"partitions":null}', '{"partitions":"4"}', '{"partitions":" 4 "}'),
    *('{"partitions":4,"properties":null}', '{"partitions":4,"properties":[]}', '{"partitions":4.0}'),
    WITH_PROPERTIES,
    '{"partitions":4,"deleted":false}',
)
PROPERTIES: Final = ("null", '{"a":1}', '{"a":true}', '{"a":1.50}', '{"a":[1]}', "[]", '"x"')
POLICIES: Final = (
    *((f"{level}/retention", '{"retentionTimeInMinutes":"10","retentionSizeInMB":"20"}') for level in (N, T)),
    *((f"{level}/retention", '{"retentionTimeInMinutes":0,"retentionSizeInMB":null}') for level in (N, T)),
    *((f"{level}/delayedDelivery", '{"active":"true","tickTime":"500"}') for level in (N, T)),
    *((f"{level}/delayedDelivery", '{"active":true,"tickTime":null}') for level in (N, T)),
    *((f"{level}/autoSubscriptionCreation", '{"allowAutoSubscriptionCreation":"true"}') for level in (N, T)),
    *((f"{N}/messageTTL", value) for value in ('"7"', '" 7"', "1e2", "[7]", "true")),
    *((f"{T}/maxProducers", value) for value in ('"7"', "7.0", "[7]")),
    *((f"{T}/deduplicationEnabled", value) for value in ('"true"', '"True"', '"TRUE"', "1", "0", '"1"', "1.5")),
    *(
        (f"{level}/subscriptionTypesEnabled", value)
        for level in (N, T)
        for value in ('"Shared"', '["Shared","Shared"]')
    ),
    (
        f"{N}/autoTopicCreation",
        '{"allowAutoTopicCreation":"true","topicType":"partitioned","defaultNumPartitions":"3"}',
    ),
    (
        f"{N}/autoTopicCreation",
        '{"allowAutoTopicCreation":true,"topicType":"non-partitioned","defaultNumPartitions":3}',
    ),
)
GUESSES: Final = {
    f"{N}/messageTTL": ("null", '""', "7.9"),
    f"{T}/maxProducers": ("null", '""', "7.9"),
    f"{N}/deduplication": ("null", '""'),
    f"{N}/retention": ('{"retentionTimeInMinutes":10.6,"retentionSizeInMB":20}',),
}
"""Values that Apache Pulsar cuts, or takes for 0 or no."""


def _media_type(body: str) -> str:
    return METADATA if body.startswith("{") else "application/json"


ASKS: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    Ask("PUT", UNKNOWN, '{"partitions":4,"unknown":1}', media_type=METADATA),
    *(
        ask
        for number, body in enumerate(PARTITIONS)
        for ask in (
            Ask("PUT", f"persistent/{{}}/q{number}/partitions", body, same=False, media_type=_media_type(body)),
            Ask("GET", f"persistent/{{}}/q{number}/partitions", same=False, fields=("partitions",)),
        )
    ),
    Ask("GET", f"persistent/{{}}/q{PARTITIONS.index(WITH_PROPERTIES)}/properties"),
    *(
        ask
        for number, body in enumerate(PROPERTIES)
        for ask in (
            Ask("PUT", f"persistent/{{}}/t{number}", body, same=False),
            Ask("GET", f"persistent/{{}}/t{number}/properties", same=number in (1, 2, 3)),
        )
    ),
    *(
        ask
        for path, value in POLICIES
        for ask in (Ask("POST", path, value, same=False), Ask("GET", path), Ask("DELETE", path))
    ),
    *(Ask("POST", path, value, same=False) for path, values in GUESSES.items() for value in values),
    *(Ask("DELETE", path) for path in GUESSES),
    Ask("PUT", f"{N}/properties", '{"a":1,"b":true}'),
    Ask("GET", f"{N}/properties"),
    Ask("PUT", f"{T}/subscription/s", '{"ledgerId":"-1","entryId":"-1","properties":null}'),
    Ask("GET", f"{T}/subscription/s/properties"),
    Ask("POST", f"{T}/subscription/s/resetcursor", '{"ledgerId":-1,"entryId":-1,"partitionIndex":"-1"}'),
    Ask("POST", f"{N}/backlogQuota", '{"limitSize":"1000","limitTime":"-1","policy":"producer_exception"}'),
    Ask("DELETE", f"{N}/backlogQuota"),
]


def test_bodies_are_read_as_pulsar_reads_them(both: Both) -> None:
    """1.1.5, 1.2.2: null, numbers as text and text as numbers: clients in Go and JavaScript send them."""
    assert compare(both, ASKS) == []
