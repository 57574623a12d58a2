# SPDX-License-Identifier: Apache-2.0
"""Settings that Apache Pulsar changes at run time and that only a cluster uses: sharing bundles out, replication.

They are taken, kept and shown, as admin tools expect it, and have no effect on a broker that is a cluster by itself.
Source: Pulsar docs, "Admin API - brokers - dynamic configuration".
"""

from __future__ import annotations

from typing import Final

VALUE_MAX: Final = 1024
"""Characters of a value, which nothing reads."""

OF_CLUSTERS: Final = frozenset(
    {
        "bookkeeperUseV2WireProtocol",
        "brokerReplicationInactiveThresholdSeconds",
        "configurationMetadataSyncEventTopic",
        "defaultNamespaceBundleSplitAlgorithm",
        "defaultNumberOfNamespaceBundles",
        "dispatchThrottlingRatePerReplicatorInByte",
        "dispatchThrottlingRatePerReplicatorInMsg",
        "exposeBundlesMetricsInPrometheus",
        "failureDomainsEnabled",
        "flowOrQpsDifferenceThresholdPercentage",
        "loadBalanceSheddingDelayInSeconds",
        "loadBalancerAutoBundleSplitEnabled",
        "loadBalancerAutoUnloadSplitBundlesEnabled",
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        "loadBalancerAvgShedderHighThreshold",
        "loadBalancerAvgShedderHitCountHighThreshold",
        "loadBalancerAvgShedderHitCountLowThreshold",
        "loadBalancerAvgShedderLowThreshold",
        "loadBalancerBandwidthInResourceWeight",
        "loadBalancerBandwidthOutResourceWeight",
        "loadBalancerBandwithInResourceWeight",
        "loadBalancerBandwithOutResourceWeight",
        "loadBalancerBrokerLoadDataTTLInSeconds",
        "loadBalancerBrokerLoadTargetStd",
        "loadBalancerBrokerMaxTopics",
        "loadBalancerBrokerOverloadedThresholdPercentage",
        "loadBalancerBrokerThresholdShedderPercentage",
        "loadBalancerBundleUnloadMinThroughputThreshold",
        "loadBalancerCPUResourceWeight",
        "loadBalancerDebugModeEnabled",
        "loadBalancerDirectMemoryResourceWeight",
        "loadBalancerDistributeBundlesEvenlyEnabled",
        "loadBalancerHistoryResourcePercentage",
        "loadBalancerHostUsageCheckIntervalMinutes",
        "loadBalancerLoadSheddingStrategy",
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        "loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        "loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        "loadBalancerMemoryResourceWeight",
        "loadBalancerMsgRateDifferenceShedderThreshold",
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
        "loadBalancerNamespaceBundleMaxBandwidthMbytes",
        "loadBalancerNamespaceBundleMaxMsgRate",
        "loadBalancerNamespaceBundleMaxSessions",
        "loadBalancerNamespaceBundleMaxTopics",
        "loadBalancerNamespaceBundleSplitConditionHitCountThreshold",
        "loadBalancerNamespaceMaximumBundles",
        "loadBalancerReportUpdateMaxIntervalMinutes",
        "loadBalancerReportUpdateMinIntervalMillis",
        "loadBalancerReportUpdateThresholdPercentage",
        "loadBalancerServiceUnitStateMaxConcurrentOverrides",
        "loadBalancerServiceUnitTableViewSyncer",
        "loadBalancerSheddingBundlesWithPoliciesEnabled",
        "loadBalancerSheddingConditionHitCountThreshold",
        "loadBalancerSheddingEnabled",
        "loadBalancerSheddingExcludedNamespaces",
        "loadBalancerSheddingGracePeriodMinutes",
        "loadBalancerSheddingIntervalMinutes",
        "loadBalancerTransferEnabled",
        "loadManagerClassName",
        "maxUnloadBundleNumPerShedding",
        "maxUnloadPercentage",
        "metadataSyncEventTopic",
        "minUnloadMessage",
        "minUnloadMessageThroughput",
        "namespaceBundleUnloadingTimeoutMs",
        "preferLaterVersions",
        "replicationProducerQueueSize",
        "replicationStartAt",
        "resourceUsageTransportPublishIntervalInSecs",
        "supportedNamespaceBundleSplitAlgorithms",
    }
)
