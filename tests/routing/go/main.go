// SPDX-License-Identifier: Apache-2.0

// The official Go client, for the table of routes: reads {"url", "topics", "keys", "scheme"} from stdin and writes, for
// each key, the partition that it went to in each topic.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
)

type request struct {
	URL    string   `json:"url"`
	Topics []string `json:"topics"`
	Keys   []string `json:"keys"`
	Scheme string   `json:"scheme"`
}

var schemes = map[string]pulsar.HashingScheme{
	"":               0, // what a producer without the option has
	"JavaStringHash": pulsar.JavaStringHash,
	"Murmur3_32Hash": pulsar.Murmur3_32Hash,
}

func main() {
	var asked request
	must(json.NewDecoder(os.Stdin).Decode(&asked))
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: asked.URL, Logger: pulsarlog.NewLoggerWithSlog(quiet)})
	must(err)
	defer client.Close()
	routes := make([][]int32, len(asked.Keys))
	for _, topic := range asked.Topics {
		for at, partition := range send(client, topic, asked) {
			routes[at] = append(routes[at], partition)
		}
	}
	must(json.NewEncoder(os.Stdout).Encode(routes))
}

func send(client pulsar.Client, topic string, asked request) []int32 {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, HashingScheme: schemes[asked.Scheme]})
	must(err)
	defer producer.Close()
	partitions := make([]int32, len(asked.Keys))
	var sent sync.WaitGroup
	sent.Add(len(asked.Keys))
	for at, key := range asked.Keys {
		message := &pulsar.ProducerMessage{Key: key, Payload: []byte("x")}
		producer.SendAsync(context.Background(), message,
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				must(err)
				partitions[at] = id.PartitionIdx()
				sent.Done()
			})
	}
	must(producer.FlushWithCtx(context.Background()))
	sent.Wait()
	return partitions
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
