# SPDX-License-Identifier: Apache-2.0
"""The official pulsar-admin, pulsar-client and pulsar-perf, unchanged, against our broker."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from broker_core.base.names import TopicName
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.testing.running_broker import RunningBroker
from tests.compat.tools import PATIENCE_S, tools_command, what_the_shell_says
from tests.server.certificates import Authority

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

N: Final = "firm/one"
T: Final = f"persistent://{N}/t"
Q: Final = f"persistent://{N}/q"
BUNDLE: Final = "0x00000000_0xffffffff"

COMMANDS: Final = (
    "admin clusters list",
    "admin tenants create firm --admin-roles me --allowed-clusters standalone",
    "admin tenants update firm --admin-roles you",
    "admin tenants get firm",
    f"admin namespaces create {N}",
    f"admin namespaces set-retention {N} --size 10M --time 10m",
    f"admin namespaces get-retention {N}",
    f"admin namespaces bundles {N}",
    f"admin namespaces policies {N}",
    "admin brokers list-dynamic-config",
    "admin brokers update-dynamic-config --config maxTopicsPerNamespace --value 50",
    "admin brokers get-all-dynamic-config",
    "admin brokers get-runtime-config",
    "admin brokers delete-dynamic-config --config maxTopicsPerNamespace",
    "admin brokers get-internal-config",
    "admin brokers healthcheck",
    "admin brokers list standalone",
    "admin brokers leader-broker",
    "admin brokers version",
    f"admin topics create-partitioned-topic {Q} -p 2",
    f"admin topics create {T}",
    f"admin namespaces grant-permission {N} --role app --actions produce,consume",
    f"admin namespaces permissions {N}",
    f"admin topics grant-permission {T} --role job --actions consume",
    f"admin topics permissions {T}",
    f"admin topics revoke-permission {T} --role job",
    f"admin namespaces revoke-permission {N} --role app",
    f"admin namespaces grant-subscription-permission {N} --subscription s --roles app,job",
    f"admin namespaces subscription-permission {N}",
    f"admin namespaces revoke-subscription-permission {N} --subscription s --role app",
    f"admin namespaces set-subscription-auth-mode {N} -m Prefix",
    f"admin namespaces get-subscription-auth-mode {N}",
    f"admin topics create-subscription {T} -s s -m earliest",
    f"client produce {T} -m hello,world -s ,",
    f"admin topics info-internal {T}",
    f"admin topics stats {T}",
    f"admin topics stats-internal {T}",
    f"admin topics partitioned-stats {Q} --per-partition",
    f"admin topics partitioned-stats-internal {Q}",
    f"admin topics lookup {T}",
    f"admin topics bundle-range {T}",
    f"admin topics peek-messages {T} -s s -n 2",
    f"client consume {T} -s s -n 1",
    f"admin topics clear-backlog {T} -s s",
    f"admin topics unload {T}",
    f"admin namespaces unload {N} -b {BUNDLE}",
    f"admin namespaces clear-backlog {N} -b {BUNDLE} --force",
    f"admin namespaces clear-backlog {N} -b {BUNDLE} -s s --force",
    f"admin namespaces unsubscribe {N} -b {BUNDLE} -s s",
    f"admin topics subscriptions {T}",
    f"admin topics list {N}",
    f"admin topics delete {T} -f",
    f"admin topics delete-partitioned-topic {Q}",
    f"admin namespaces delete {N}",
    "admin tenants delete firm",
)


ODD_NAMES: Final = ("a b", "a+b", "a/b", "a%2Fb", "a%2Bb", "a%b", "100%", "a:b", "a?b", "a#b", "zażółć 冬", "team/job")
"""Names of subscriptions; some are others, encoded once."""

READERS: Final = (("admin topics peek-messages", 2), ("client consume", 1))


@pytest.fixture
def tool(broker: RunningBroker, tmp_path: Path) -> list[str]:
    """How the tools are started for the broker: the name of one, its configuration and its arguments come behind it."""
    (tmp_path / "client.conf").write_text(f"webServiceUrl={broker.http_url}\nbrokerServiceUrl={broker.service_url}\n")
    return tools_command(tmp_path)


def test_pulsar_admin_and_pulsar_client_work(tool: list[str], tmp_path: Path) -> None:
    """Every command ends well, and says what the broker knows."""
    said = what_the_shell_says(tool, tmp_path, COMMANDS)
    assert said["admin clusters list"].split() == ["standalone"]
    assert json.loads(said["admin tenants get firm"])["adminRoles"] == ["you"]
    assert json.loads(said[f"admin namespaces policies {N}"])["retention_policies"]["retentionTimeInMinutes"] == 10
    granted = re.findall(r"\w+", said[f"admin topics permissions {T}"])
    assert sorted(granted) == ["app", "consume", "consume", "job", "produce"]
    assert said[f"admin namespaces subscription-permission {N}"].split() == ["s", "[app,", "job]"]
    assert said[f"admin namespaces get-subscription-auth-mode {N}"].strip() == '"Prefix"'
    assert "maxTopicsPerNamespace" in said["admin brokers list-dynamic-config"].split()
    assert said["admin brokers get-all-dynamic-config"].split() == ["maxTopicsPerNamespace", "50"]
    assert json.loads(said[f"admin topics stats {T}"])["subscriptions"]["s"]["msgBacklog"] == 2
    assert said[f"admin topics bundle-range {T}"].strip() == BUNDLE
    assert said[f"admin topics subscriptions {T}"].split() == []
    assert all("hello" in said[f"{reader} {T} -s s -n {count}"] for reader, count in READERS)


def test_pulsar_admin_reaches_the_subscription_that_it_names(
    broker: RunningBroker, tool: list[str], tmp_path: Path
) -> None:
    """1.2.2: it encodes names twice in paths of topics, and once, with a plus as a blank, in those of namespaces."""
    topic = "persistent://public/default/named"
    kept, cleared = "kept+by all%2F", "cleared+by all%2F"
    with Client(broker.service_url) as client:
        for name in (*ODD_NAMES, kept, cleared):
            client.subscribe(topic, name).close()
        with client.create_producer(topic, batching_enabled=False) as producer:
            producer.send(b"1")
    commands = [f'admin topics skip {topic} -s "{name}" -n 1' for name in ODD_NAMES]
    commands.append(f'admin namespaces clear-backlog public/default -s "{cleared}" --force')
    what_the_shell_says(tool, tmp_path, commands)
    with AdminApi(broker.http_url, timeout_s=PATIENCE_S) as admin:
        stats = admin.topic_stats(TopicName.parse(topic), 0)["subscriptions"]
        backlogs = {name: each["msgBacklog"] for name, each in stats.items()}
        assert backlogs == {**dict.fromkeys(ODD_NAMES, 0), cleared: 0, kept: 1}
        commands = [f'admin topics unsubscribe {topic} -s "{name}"' for name in ODD_NAMES[::2]]
        commands.append(f'admin namespaces unsubscribe public/default -s "{cleared}"')
        what_the_shell_says(tool, tmp_path, commands)
        assert set(admin.topic_stats(TopicName.parse(topic), 0)["subscriptions"]) == {*ODD_NAMES[1::2], kept}


def test_pulsar_perf_sends_and_receives(broker: RunningBroker, tool: list[str], tmp_path: Path) -> None:
    """So many messages, then the same number back; each ends by itself when it has them."""
    common = ["org.apache.pulsar.testclient.PulsarPerfTestTool", str(tmp_path / "client.conf")]
    topic = "persistent://public/default/perf"
    for arguments in (["produce", "-r", "1000", "-s", "100"], ["consume", "-sp", "Earliest", "-ss", "s"]):
        command = [*tool, *common, *arguments, "-u", broker.service_url, "-m", "500", topic]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_they_work_with_tls(tool: list[str], tmp_path: Path) -> None:
    """At a broker without plain ports, whose name they verify: lookup leads them back to the port with TLS."""
    authority, topic = Authority(tmp_path), "persistent://public/default/secret"
    pair = authority.issue("broker", "127.0.0.1", "localhost")  # the Java client looks up the name of an address
    settings: dict[str, object] = dict.fromkeys(("brokerServicePortTls", "webServicePortTls"), 0)
    settings |= {"tlsCertificateFilePath": pair.certificate, "tlsKeyFilePath": pair.key}
    commands = [
        f"admin topics create {topic}",
        f"client produce {topic} -m hello",
        f"client consume {topic} -s s -p Earliest -n 1",
    ]
    with RunningBroker(tmp_path / "data", settings, port=-1, http_port=-1) as secured:
        (tmp_path / "client.conf").write_text(
            f"webServiceUrl={secured.http_url}\nbrokerServiceUrl={secured.service_url}\n"
            f"tlsTrustCertsFilePath={authority.path}\ntlsEnableHostnameVerification=true\n"
        )
        said = what_the_shell_says(tool, tmp_path, commands)
    assert "hello" in said[commands[-1]]


ISOLATION: Final = (
    "--namespaces firm/.* --primary nowhere.* --secondary none "
    "--auto-failover-policy-type min_available --auto-failover-policy-params min_limit=1,usage_threshold=80"
)
CLUSTER_COMMANDS: Final = (
    "admin clusters get standalone",
    "admin clusters get-peer-clusters standalone",
    "admin clusters create-failure-domain standalone --domain-name here --broker-list nowhere:8080",
    "admin clusters list-failure-domains standalone",
    "admin clusters get-failure-domain standalone --domain-name here",
    "admin clusters delete-failure-domain standalone --domain-name here",
    f"admin ns-isolation-policy set standalone apart {ISOLATION}",
    "admin ns-isolation-policy list standalone",
    "admin ns-isolation-policy get standalone apart",
    "admin ns-isolation-policy brokers standalone",
    "admin ns-isolation-policy delete standalone apart",
    "admin resource-quotas get",
    "admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false",
    "admin brokers delete-dynamic-config --config loadBalancerSheddingEnabled",
    "admin brokers update-dynamic-config --config dispatchThrottlingRatePerTopicInMsg --value 1000",
    "admin brokers delete-dynamic-config --config dispatchThrottlingRatePerTopicInMsg",
    "admin tenants create group --admin-roles me --allowed-clusters standalone",
    "admin namespaces create group/one",
    f"admin resource-quotas set -n group/one -b {BUNDLE} -mi 1 -mo 1 -bi 1 -bo 1 -mem 1",
    f"admin resource-quotas get -n group/one -b {BUNDLE}",
    f"admin resource-quotas reset-namespace-bundle-quota -n group/one -b {BUNDLE}",
    "admin namespaces set-persistence group/one -e 1 -w 1 -a 1 -r 0.5",
    "admin namespaces get-persistence group/one",
    "admin namespaces set-bookie-affinity-group group/one -pg first",
    "admin namespaces get-bookie-affinity-group group/one",
    "admin namespaces set-inactive-topic-policies group/one -e -t 10m -m delete_when_no_subscriptions",
    "admin namespaces get-inactive-topic-policies group/one",
    "admin namespaces remove-inactive-topic-policies group/one",
    "admin namespaces set-subscribe-rate group/one -sr 5 -st 30",
    "admin namespaces get-subscribe-rate group/one",
    "admin namespaces set-replicator-dispatch-rate group/one -md 5 -bd 6 -dt 1",
    "admin namespaces get-replicator-dispatch-rate group/one",
    "admin namespaces set-compaction-threshold group/one -t 10M",
    "admin namespaces get-compaction-threshold group/one",
    "admin namespaces set-offload-threshold group/one -s 10M",
    "admin namespaces get-offload-threshold group/one",
    "admin namespaces set-offload-deletion-lag group/one -l 1h",
    "admin namespaces get-offload-deletion-lag group/one",
    "admin namespaces clear-offload-deletion-lag group/one",
    "admin namespaces set-anti-affinity-group group/one -g apart",
    "admin namespaces get-anti-affinity-group group/one",
    "admin namespaces set-schema-compatibility-strategy group/one -c FULL",
    "admin namespaces get-schema-compatibility-strategy group/one",
    "admin namespaces set-schema-validation-enforce group/one -e",
    "admin namespaces set-is-allow-auto-update-schema group/one --disable",
    "admin topics create group/one/t",
    "admin topicPolicies set-persistence group/one/t -e 1 -w 1 -a 1 -r 0",
    "admin topicPolicies get-persistence group/one/t",
    "admin topicPolicies set-subscribe-rate group/one/t -sr 5 -st 30",
    "admin topicPolicies set-inactive-topic-policies group/one/t -e -t 10m -m delete_when_subscriptions_caught_up",
    "admin topics set-replication-clusters group/one/t -c standalone",
    "admin namespaces policies group/one",
    "admin topics delete group/one/t",
    "admin namespaces delete group/one",
    "admin tenants delete group",
    "admin broker-stats topics",
)
"""The last one closes the output of the shell."""


def test_pulsar_admin_finds_what_a_cluster_has(tool: list[str], tmp_path: Path) -> None:
    """1.1.5: commands for the parts of a cluster end well, and policies without effect are shown as they were set."""
    said = what_the_shell_says(tool, tmp_path, CLUSTER_COMMANDS)
    policies = json.loads(said["admin namespaces policies group/one"])
    assert policies["persistence"]["bookkeeperEnsemble"] == 1
    assert policies["clusterSubscribeRate"]["standalone"]["subscribeThrottlingRatePerConsumer"] == 5
    assert policies["compaction_threshold"] == 10 * 1024 * 1024
    assert said["admin namespaces get-anti-affinity-group group/one"].strip() == "apart"
    assert isinstance(json.loads(said["admin broker-stats topics"]), dict)
