// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Whatever may be asked; each operation reads its own fields. null leaves a field as it is made.
type request struct {
	ID      int64
	Op      string
	Objects []int64

	URL    string
	Access access

	Client, Producer, Consumer, Reader, View, Message int64

	Transactions bool
	Transaction  *int64

	Topic, Subscription, Name, Pattern, Type string
	Topics                                   []string

	Compression   string
	HashingScheme string `json:"hashing_scheme"`
	AccessMode    string `json:"access_mode"`
	Batching      bool
	BatchingByKey bool `json:"batching_by_key"`
	Chunking      bool
	ChunkBytes    uint `json:"chunk_bytes"`
	Messages      []outgoing
	outgoing

	InitialPosition        string `json:"initial_position"`
	Looks                  bool
	Compacted              bool
	QueueSize              int `json:"queue_size"`
	Priority               int
	NackDelayMs            int64  `json:"nack_delay_ms"`
	AckTimeoutMs           *int64 `json:"ack_timeout_ms"`
	BatchIndexAcks         bool   `json:"batch_index_acks"`
	Ranges                 [][2]int
	RelaxedOrder           bool `json:"relaxed_order"`
	Retry                  bool
	MaxRedeliverCount      *uint32 `json:"max_redeliver_count"`
	DeadLetterTopic        string  `json:"dead_letter_topic"`
	DeadLetterSubscription string  `json:"dead_letter_subscription"`

	Start     string
	Inclusive bool
	RollbackS int `json:"rollback_s"`

	TimeoutMs *int64 `json:"timeout_ms"`
	DelayMs   int64  `json:"delay_ms"`
	Target    string
	TimeMs    *int64 `json:"time_ms"`
	Force     bool
}

type access struct {
	TrustCerts  string `json:"trust_certs"`
	Certificate string
	Key         string
	Token       string
	User        string
	Password    string
}

type outgoing struct {
	Value          []byte
	Key            string
	OrderingKey    string `json:"ordering_key"`
	Properties     map[string]string
	EventTimeMs    *int64        `json:"event_time_ms"`
	SequenceID     *int64        `json:"sequence_id"`
	DeliverAfterMs *int64        `json:"deliver_after_ms"`
	Own            *schemaChoice `json:"schema"`
}

// The message of a producer whose values are typed, unless the message has a schema of its own.
func (fields outgoing) message(typed *typedAs) (*pulsar.ProducerMessage, error) {
	own, err := fields.Own.typed()
	if err != nil {
		return nil, err
	}
	message := fields.untyped()
	if own != nil {
		message.Schema, typed = own.schema, own
	}
	if typed.hasValues() && fields.Value != nil {
		message.Payload = nil
		message.Value, err = typed.parsed(fields.Value)
	}
	return message, err
}

func (fields outgoing) untyped() *pulsar.ProducerMessage {
	message := &pulsar.ProducerMessage{
		Payload:     fields.Value,
		Key:         fields.Key,
		OrderingKey: fields.OrderingKey,
		Properties:  fields.Properties,
		SequenceID:  fields.SequenceID,
	}
	if fields.EventTimeMs != nil {
		message.EventTime = time.UnixMilli(*fields.EventTimeMs)
	}
	if fields.DeliverAfterMs != nil {
		message.DeliverAfter = milliseconds(*fields.DeliverAfterMs)
	}
	return message
}

// A message as the application sees it.
func (d *driver) seen(message pulsar.Message, typed *typedAs) (any, error) {
	value, err := append([]byte{}, message.Payload()...), error(nil)
	if typed.hasValues() {
		value, err = typed.read(message)
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"object":           d.kept(message),
		"message_id":       message.ID().Serialize(),
		"value":            value,
		"data":             message.Payload(),
		"schema_version":   message.SchemaVersion(),
		"key":              textOrNil(message.Key()),
		"ordering_key":     textOrNil(message.OrderingKey()),
		"properties":       message.Properties(),
		"redelivery_count": message.RedeliveryCount(),
		"publish_time_ms":  message.PublishTime().UnixMilli(),
		"event_time_ms":    message.EventTime().UnixMilli(),
		"topic":            message.Topic(),
		"producer_name":    message.ProducerName(),
	}, nil
}

func messageID(named string) (pulsar.MessageID, error) {
	switch named {
	case "earliest":
		return pulsar.EarliestMessageID(), nil
	case "latest":
		return pulsar.LatestMessageID(), nil
	}
	serialized, err := base64.StdEncoding.DecodeString(named)
	if err != nil {
		return nil, err
	}
	return pulsar.DeserializeMessageID(serialized)
}

func textOrNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }
