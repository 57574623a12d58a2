# SPDX-License-Identifier: Apache-2.0
"""Settings over HTTP: what may be changed while the broker runs, what it does at once, and that it is kept."""

from __future__ import annotations

from pathlib import Path

import httpx
import msgspec
import pytest

from broker_core.base.errors import PulsarishError
from broker_core.base.settings import Settings
from broker_core.broker.cluster_settings import OF_CLUSTERS
from broker_core.broker.policy_book import DYNAMIC
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker

C = "/brokers/configuration"


def test_a_change_holds_at_once_over_restarts_and_until_it_is_taken_back(data_dir: Path) -> None:
    """Topics are no longer made by their first use, then are again; what the broker was started with is not touched."""
    topic = "persistent://public/default/unknown"
    with RunningBroker(data_dir) as broker:
        with httpx.Client(base_url=f"{broker.http_url}/admin/v2") as http, Client(broker.service_url) as client:
            assert http.post(f"{C}/allowAutoTopicCreation/false").status_code == 200
            assert http.get(f"{C}/values").json() == {"allowAutoTopicCreation": "false"}
            with pytest.raises(PulsarishError, match="does not exist"):
                client.create_producer(topic)
        broker.kill()
        broker.start()
        with httpx.Client(base_url=f"{broker.http_url}/admin/v2") as http, Client(broker.service_url) as client:
            assert http.get(f"{C}/runtime").json()["allowAutoTopicCreation"] == "false"
            with pytest.raises(PulsarishError, match="does not exist"):
                client.create_producer(topic)
            assert http.delete(f"{C}/allowAutoTopicCreation").status_code == 200
            assert http.get(f"{C}/values").json() == {}
            client.create_producer(topic).close()


def test_every_dynamic_setting_takes_its_own_value(http: httpx.Client) -> None:
    """The names are settings, and the text that the broker shows of each is one that it takes."""
    shown = http.get(f"{C}/runtime").json()
    assert set(shown) == {field.encode_name for field in msgspec.structs.fields(Settings)}
    assert http.get(C).json() == sorted({*DYNAMIC, *OF_CLUSTERS})
    for name in DYNAMIC:
        assert http.post(f"{C}/{name}/{shown[name]}").status_code == 200, name
    assert http.get(f"{C}/values").json() == {name: shown[name] for name in DYNAMIC}
    for name in DYNAMIC:
        http.delete(f"{C}/{name}")
    assert http.get(f"{C}/runtime").json() == shown


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("maxMessageSize/1024", "cannot be changed while the broker runs"),
        ("nothing/1", "cannot be changed while the broker runs"),
        ("loadBalancerSheddingEnabled/" + "x" * 2000, "cannot be changed while the broker runs"),
        ("brokerPublisherThrottlingMaxMessageRate/10", "set maxPublishRatePerTopicInMessages"),
        ("dispatchThrottlingRateInByte/10", "set dispatchThrottlingRatePerTopicInMsg"),
        ("maxPublishRatePerTopicInBytes/-1", "is no value"),
        ("defaultNumPartitions/0", "is no value"),
        ("allowAutoTopicCreation/perhaps", "is no value"),
        ("subscriptionTypesEnabled/Shared,Nothing", "is no value"),
    ],
)
def test_what_cannot_be_changed_is_refused(http: httpx.Client, setting: str, why: str) -> None:
    """412 with the reason, for a name that is not dynamic and for a value that it cannot have; nothing has changed."""
    before = http.get(f"{C}/runtime").json()
    answer = http.post(f"{C}/{setting}")
    assert answer.status_code == 412
    assert why in answer.json()["reason"]
    assert http.get(f"{C}/runtime").json() == before
    assert http.delete(f"{C}/{setting.partition('/')[0]}").status_code in (200, 412)


def test_nothing_lies_outside_the_broker(http: httpx.Client) -> None:
    """Tools ask where the metadata is kept before they begin."""
    assert set(http.get("/brokers/internal-configuration").json().values()) == {""}


def test_settings_that_only_a_cluster_uses_are_kept_and_shown(data_dir: Path) -> None:
    """Without effect: they are none of the settings in force, over restarts, until they are taken back."""
    with RunningBroker(data_dir) as broker:
        with httpx.Client(base_url=f"{broker.http_url}/admin/v2") as http:
            before = http.get(f"{C}/runtime").json()
            assert http.post(f"{C}/loadBalancerSheddingEnabled/false").status_code == 200
            assert http.get(f"{C}/runtime").json() == before
        broker.kill()
        broker.start()
        with httpx.Client(base_url=f"{broker.http_url}/admin/v2") as http:
            assert http.get(f"{C}/values").json() == {"loadBalancerSheddingEnabled": "false"}
            assert http.delete(f"{C}/loadBalancerSheddingEnabled").status_code == 200
            assert http.get(f"{C}/values").json() == {}


RATES_OF_TOPICS = {
    "dispatchRate": {"dispatchThrottlingRatePerTopicInMsg": "5", "dispatchThrottlingRatePerTopicInByte": "6"},
    "subscriptionDispatchRate": {
        "dispatchThrottlingRatePerSubscriptionInMsg": "7",
        "dispatchThrottlingRatePerSubscriptionInByte": "8",
    },
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": "9", "subscribeRatePeriodPerConsumerInSecond": "10"},
}


@pytest.mark.parametrize("policy", RATES_OF_TOPICS)
def test_rates_of_the_broker_hold_for_topics_without_their_own(http: httpx.Client, path: str, policy: str) -> None:
    """7.16: at once, until they are taken back."""
    assert http.put(path).status_code == 204
    applied = f"{path}/{policy}?applied=true"
    before = http.get(applied).json()
    for name, value in RATES_OF_TOPICS[policy].items():
        assert http.post(f"{C}/{name}/{value}").status_code == 200
    found = http.get(applied).json()
    numbers = [number for field, number in found.items() if number != before[field]]
    assert numbers == [int(value) for value in RATES_OF_TOPICS[policy].values()]
    for name in RATES_OF_TOPICS[policy]:
        assert http.delete(f"{C}/{name}").status_code == 200
    assert http.get(applied).json() == before
