# SPDX-License-Identifier: Apache-2.0
"""Topics that store nothing: a message goes to consumers that are connected and can take it; otherwise it is dropped.

They share producers, access modes, consumers and the mappings of keys with persistent topics; what differs is small
enough to be whole here. Source: Pulsar docs, "Non-persistent topics"; semantics 1.1.8, 7.10.
"""
