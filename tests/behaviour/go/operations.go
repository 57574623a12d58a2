// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// -- clients

// One for each address and access, for ever. One more for transactions.
func (d *driver) client(asked *request) (any, error) {
	d.making.Lock()
	defer d.making.Unlock()
	name := fmt.Sprint(asked.URL, asked.Transactions, asked.Access)
	if known, made := d.clients[name]; made {
		return known, nil
	}
	shown, err := asked.Access.authentication()
	if err != nil {
		return nil, err
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:                   asked.URL,
		OperationTimeout:      15 * time.Second,
		Authentication:        shown,
		TLSTrustCertsFilePath: asked.Access.TrustCerts,
		TLSValidateHostname:   true,
		EnableTransaction:     asked.Transactions,
	})
	if err != nil {
		return nil, err
	}
	d.clients[name] = d.kept(client)
	return d.clients[name], nil
}

func (shown access) authentication() (pulsar.Authentication, error) {
	switch {
	case shown.Token != "":
		return pulsar.NewAuthenticationToken(shown.Token), nil
	case shown.Certificate != "":
		return pulsar.NewAuthenticationTLS(shown.Certificate, shown.Key), nil
	case shown.User != "":
		return pulsar.NewAuthenticationBasic(shown.User, shown.Password)
	}
	return nil, nil
}

// -- producers

var compressions = map[string]pulsar.CompressionType{
	"none": pulsar.NoCompression, "lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD, "snappy": pulsar.SNAPPY,
}

var hashingSchemes = map[string]pulsar.HashingScheme{
	"":               0, // that of a producer without the option
	"JavaStringHash": pulsar.JavaStringHash,
	"Murmur3_32Hash": pulsar.Murmur3_32Hash,
}

var accessModes = map[string]pulsar.ProducerAccessMode{
	"Shared":           pulsar.ProducerAccessModeShared,
	"Exclusive":        pulsar.ProducerAccessModeExclusive,
	"WaitForExclusive": pulsar.ProducerAccessModeWaitForExclusive,
}

func (d *driver) producer(asked *request) (any, error) {
	mode, known := accessModes[asked.AccessMode]
	if !known {
		return nil, cannotExpress(asked.AccessMode)
	}
	typed, err := asked.Own.typed()
	if err != nil {
		return nil, err
	}
	options := pulsar.ProducerOptions{
		Topic:                   asked.Topic,
		Name:                    asked.Name,
		HashingScheme:           hashingSchemes[asked.HashingScheme],
		CompressionType:         compressions[asked.Compression],
		ProducerAccessMode:      mode,
		DisableBatching:         !asked.Batching && (!typed.hasValues() || asked.Chunking),
		BatchingMaxPublishDelay: time.Minute,
		BatchingMaxMessages:     1000,
		EnableChunking:          asked.Chunking,
		ChunkMaxMessageSize:     asked.ChunkBytes,
		Schema:                  typed.client(),
	}
	if !asked.Batching {
		options.BatchingMaxMessages = 1 // a message that travels alone tells no version of its schema
	}
	if asked.BatchingByKey {
		options.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
	}
	producer, err := object[pulsar.Client](d, asked.Client).CreateProducer(options)
	if err != nil {
		return nil, err
	}
	made := map[string]any{"name": producer.Name(), "last_sequence_id": producer.LastSequenceID()}
	made["object"] = d.keptTyped(producer, typed)
	return made, nil
}

func (d *driver) send(asked *request) (any, error) {
	message, err := asked.message(d.typedOf(asked.Producer))
	if err != nil {
		return nil, err
	}
	message.Transaction = d.within(asked)
	id, err := object[pulsar.Producer](d, asked.Producer).Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return id.Serialize(), nil
}

func (d *driver) sendTogether(asked *request) (any, error) {
	producer := object[pulsar.Producer](d, asked.Producer)
	ids, sent := make([][]byte, len(asked.Messages)), make(chan error, len(asked.Messages))
	for at, fields := range asked.Messages {
		receipt := func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err == nil {
				ids[at] = id.Serialize()
			}
			sent <- err
		}
		message, err := fields.message(d.typedOf(asked.Producer))
		if err != nil {
			return nil, err
		}
		message.Transaction = d.within(asked)
		producer.SendAsync(context.Background(), message, receipt)
	}
	failed := producer.FlushWithCtx(context.Background())
	for range asked.Messages {
		failed = errors.Join(failed, <-sent)
	}
	return ids, failed
}

// -- consumers

var types = map[string]pulsar.SubscriptionType{
	"Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover, "Shared": pulsar.Shared, "Key_Shared": pulsar.KeyShared,
}

func (d *driver) consumer(asked *request) (any, error) {
	if asked.Priority != 0 || asked.AckTimeoutMs != nil {
		return nil, cannotExpress("priority levels, ack timeouts")
	}
	if asked.Pattern != "" && !asked.Looks {
		return nil, cannotExpress("a watch of topics")
	}
	typed, err := asked.Own.typed()
	if err != nil {
		return nil, err
	}
	options := pulsar.ConsumerOptions{
		Topics:                         asked.Topics,
		MessageChannel:                 make(chan pulsar.ConsumerMessage), // else it takes ten more than its queue has room for
		TopicsPattern:                  asked.Pattern,
		AutoDiscoveryPeriod:            time.Second,
		SubscriptionName:               asked.Subscription,
		Type:                           types[asked.Type],
		Name:                           asked.Name,
		ReadCompacted:                  asked.Compacted,
		ReceiverQueueSize:              asked.QueueSize,
		EnableZeroQueueConsumer:        asked.QueueSize == 0,
		NackRedeliveryDelay:            milliseconds(asked.NackDelayMs),
		NackPrecisionBit:               new(int64), // else up to 256 ms early
		EnableBatchIndexAcknowledgment: asked.BatchIndexAcks,
		AckGroupingOptions:             &pulsar.AckGroupingOptions{MaxSize: 1},
		RetryEnable:                    asked.Retry,
		DLQ:                            asked.deadLetterPolicy(),
		KeySharedPolicy:                asked.keySharedPolicy(),
		Schema:                         typed.client(),
	}
	if len(asked.Topics) == 1 {
		options.Topic, options.Topics = asked.Topics[0], nil
	}
	if asked.InitialPosition == "Earliest" {
		options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	}
	consumer, err := object[pulsar.Client](d, asked.Client).Subscribe(options)
	if err != nil {
		return nil, err
	}
	return d.keptTyped(&subscribed{consumer, options.Topic}, typed), nil
}

// A consumer, with its topic where that is a single one.
type subscribed struct {
	pulsar.Consumer
	topic string
}

func (asked *request) deadLetterPolicy() *pulsar.DLQPolicy {
	if asked.MaxRedeliverCount == nil {
		return nil
	}
	deliveries := *asked.MaxRedeliverCount // as it counts messages of a retry topic
	if !asked.Retry {
		deliveries++
	}
	return &pulsar.DLQPolicy{
		MaxDeliveries:           deliveries,
		DeadLetterTopic:         asked.DeadLetterTopic,
		InitialSubscriptionName: asked.DeadLetterSubscription,
	}
}

func (asked *request) keySharedPolicy() *pulsar.KeySharedPolicy {
	if asked.Ranges == nil && !asked.RelaxedOrder {
		return nil
	}
	policy := &pulsar.KeySharedPolicy{AllowOutOfOrderDelivery: asked.RelaxedOrder}
	for _, each := range asked.Ranges {
		policy.Mode = pulsar.KeySharedPolicyModeSticky
		policy.HashRanges = append(policy.HashRanges, each[0], each[1])
	}
	return policy
}

// null when nothing has come in time.
func (d *driver) received(asked *request, source int64, next func(context.Context) (pulsar.Message, error)) (any, error) {
	waiting, end := context.Background(), func() {}
	if asked.TimeoutMs != nil {
		waiting, end = context.WithTimeout(waiting, milliseconds(*asked.TimeoutMs))
	}
	defer end()
	message, err := next(waiting)
	if waiting.Err() != nil && message == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.seen(message, d.typedOf(source))
}

func (d *driver) receive(asked *request) (any, error) {
	return d.received(asked, asked.Consumer, object[*subscribed](d, asked.Consumer).Receive)
}

func (d *driver) ack(asked *request) (any, error) {
	consumer, message := object[*subscribed](d, asked.Consumer), object[pulsar.Message](d, asked.Message)
	if transaction := d.within(asked); transaction != nil {
		return nil, consumer.AckWithTxn(message, transaction)
	}
	return nil, consumer.Ack(message)
}

func (d *driver) ackCumulative(asked *request) (any, error) {
	if asked.Transaction != nil {
		return nil, cannotExpress("a cumulative acknowledgement in a transaction")
	}
	return nil, object[*subscribed](d, asked.Consumer).AckCumulative(object[pulsar.Message](d, asked.Message))
}

func (d *driver) nack(asked *request) (any, error) {
	object[*subscribed](d, asked.Consumer).Nack(object[pulsar.Message](d, asked.Message))
	return nil, nil
}

func (d *driver) nackTwice(asked *request) (any, error) {
	d.nack(asked)
	return d.nack(asked)
}

func (d *driver) reconsumeLater(asked *request) (any, error) {
	object[*subscribed](d, asked.Consumer).ReconsumeLaterWithCustomProperties(
		object[pulsar.Message](d, asked.Message), asked.Properties, milliseconds(asked.DelayMs))
	return nil, nil
}

func (d *driver) seek(asked *request) (any, error) {
	consumer := object[*subscribed](d, asked.Consumer)
	if strings.HasPrefix(consumer.topic, "non-persistent:") {
		return nil, cannotExpress("a seek after which the server does not disconnect the consumer")
	}
	if asked.TimeMs != nil {
		return nil, consumer.SeekByTime(time.UnixMilli(*asked.TimeMs))
	}
	target, err := messageID(asked.Target)
	if err != nil {
		return nil, err
	}
	if target.PartitionIdx() < 0 { // as the client's earliest and latest have it, and its consumers refuse it
		target = pulsar.NewMessageID(target.LedgerID(), target.EntryID(), target.BatchIdx(), 0)
	}
	return nil, consumer.Seek(target)
}

func (d *driver) unsubscribe(asked *request) (any, error) {
	consumer := object[*subscribed](d, asked.Consumer)
	if asked.Force {
		return nil, consumer.UnsubscribeForce()
	}
	return nil, consumer.Unsubscribe()
}

func (d *driver) lastMessageID(asked *request) (any, error) {
	ids, err := object[*subscribed](d, asked.Consumer).GetLastMessageIDs()
	if err != nil {
		return nil, err
	}
	return ids[0].Serialize(), nil
}

// -- readers and table views

func (d *driver) reader(asked *request) (any, error) {
	if asked.RollbackS != 0 {
		return nil, cannotExpress("a reader that begins so long ago")
	}
	start, err := messageID(asked.Start)
	if err != nil {
		return nil, err
	}
	typed, err := asked.Own.typed()
	if err != nil {
		return nil, err
	}
	reader, err := object[pulsar.Client](d, asked.Client).CreateReader(pulsar.ReaderOptions{
		Topic: asked.Topic, StartMessageID: start, StartMessageIDInclusive: asked.Inclusive,
		ReadCompacted: asked.Compacted, Schema: typed.client(),
	})
	if err != nil {
		return nil, err
	}
	return d.keptTyped(reader, typed), nil
}

func (d *driver) read(asked *request) (any, error) {
	return d.received(asked, asked.Reader, object[pulsar.Reader](d, asked.Reader).Next)
}

func (d *driver) hasMessageAvailable(asked *request) (any, error) {
	return object[pulsar.Reader](d, asked.Reader).HasNext(), nil
}

func (d *driver) tableView(asked *request) (any, error) {
	typed, err := asked.Own.typed()
	if err != nil {
		return nil, err
	}
	options := pulsar.TableViewOptions{
		Topic: asked.Topic, Schema: pulsar.NewBytesSchema(nil), SchemaValueType: reflect.TypeFor[[]byte](),
	}
	if typed.hasValues() {
		options.Schema, options.SchemaValueType = typed.schema, typed.value
	}
	view, err := object[pulsar.Client](d, asked.Client).CreateTableView(options)
	if err != nil {
		return nil, err
	}
	return d.keptTyped(view, typed), nil
}

func (d *driver) table(asked *request) (any, error) {
	rows := object[pulsar.TableView](d, asked.View).Entries()
	if !d.typedOf(asked.View).hasValues() {
		return rows, nil
	}
	texts := map[string][]byte{}
	for key, value := range rows {
		text, err := told(value)
		if err != nil {
			return nil, err
		}
		texts[key] = text
	}
	return texts, nil
}

// -- transactions

func (d *driver) transaction(asked *request) (any, error) {
	begun, err := object[pulsar.Client](d, asked.Client).NewTransaction(milliseconds(*asked.TimeoutMs))
	if err != nil {
		return nil, err
	}
	return d.kept(begun), nil
}

// That of the request; nil where it names none.
func (d *driver) within(asked *request) pulsar.Transaction {
	if asked.Transaction == nil {
		return nil
	}
	return object[pulsar.Transaction](d, *asked.Transaction)
}

func (d *driver) commit(asked *request) (any, error) {
	return nil, d.within(asked).Commit(context.Background())
}

func (d *driver) abort(asked *request) (any, error) {
	return nil, d.within(asked).Abort(context.Background())
}
