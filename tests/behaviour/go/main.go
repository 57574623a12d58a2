// SPDX-License-Identifier: Apache-2.0

// The official Go client behind a line protocol: one JSON object a line on stdin, one answer a line on stdout.
//
// A request is {"id": n, "op": name, ...}; its answer {"id": n, "result": ...} or {"id": n, "error": kind, "text": ...}.
// Objects stay here and are named by numbers. Each request runs in a goroutine of its own, so one that waits holds up
// nobody; answers come in any order. What the client has no words for is answered with the error CannotExpress.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
)

type driver struct {
	answers sync.Mutex
	objects sync.Map
	typed   sync.Map // what some objects' values are, by the numbers of these
	numbers atomic.Int64
	making  sync.Mutex
	clients map[string]int64
}

type operation func(*driver, *request) (any, error)

var operations = map[string]operation{
	"client":                (*driver).client,
	"close":                 (*driver).close,
	"producer":              (*driver).producer,
	"send":                  (*driver).send,
	"send_together":         (*driver).sendTogether,
	"consumer":              (*driver).consumer,
	"receive":               (*driver).receive,
	"ack":                   (*driver).ack,
	"ack_cumulative":        (*driver).ackCumulative,
	"nack":                  (*driver).nack,
	"nack_twice":            (*driver).nackTwice,
	"reconsume_later":       (*driver).reconsumeLater,
	"seek":                  (*driver).seek,
	"unsubscribe":           (*driver).unsubscribe,
	"last_message_id":       (*driver).lastMessageID,
	"reader":                (*driver).reader,
	"read":                  (*driver).read,
	"has_message_available": (*driver).hasMessageAvailable,
	"table_view":            (*driver).tableView,
	"table":                 (*driver).table,
	"transaction":           (*driver).transaction,
	"commit":                (*driver).commit,
	"abort":                 (*driver).abort,
}

func main() {
	serving := &driver{clients: map[string]int64{}}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		asked := &request{}
		if err := json.Unmarshal(line, asked); err != nil {
			panic(err)
		}
		go serving.answer(asked)
	}
}

func (d *driver) answer(asked *request) {
	answer := map[string]any{"id": asked.ID}
	if result, err := d.perform(asked); err != nil {
		answer["error"], answer["text"] = kind(err), err.Error()
	} else {
		answer["result"] = result
	}
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	d.answers.Lock()
	defer d.answers.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func (d *driver) perform(asked *request) (result any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	perform := operations[asked.Op]
	if perform == nil {
		return nil, cannotExpress(asked.Op)
	}
	return perform(d, asked)
}

// An error of something that the client has no words for.
type cannotExpress string

func (what cannotExpress) Error() string { return string(what) }

var serverError = regexp.MustCompile(`(?:server|response) error: (\w+)|^(\w+Error)$`)

// The server's name of the error where it sent one, else the client's.
func kind(err error) string {
	var missing cannotExpress
	if errors.As(err, &missing) {
		return "CannotExpress"
	}
	if found := serverError.FindStringSubmatch(err.Error()); found != nil {
		return found[1] + found[2]
	}
	var known *pulsar.Error
	if errors.As(err, &known) && known.Result() == pulsar.InvalidStatus {
		return "InvalidStatus" // which the client has no name for
	}
	if errors.As(err, &known) {
		return regexp.MustCompile(`\w+$`).FindString(known.Error())
	}
	return "Error"
}

func (d *driver) kept(object any) int64 {
	number := d.numbers.Add(1)
	d.objects.Store(number, object)
	return number
}

// The same, with the schema of its values.
func (d *driver) keptTyped(object any, typed *typedAs) int64 {
	number := d.kept(object)
	if typed.hasValues() {
		d.typed.Store(number, typed)
	}
	return number
}

// nil where the values of an object are bytes.
func (d *driver) typedOf(number int64) *typedAs {
	found, _ := d.typed.Load(number)
	typed, _ := found.(*typedAs)
	return typed
}

// The object of a number; panics where there is none, which is answered as an error.
func object[T any](d *driver, number int64) T {
	found, _ := d.objects.Load(number)
	return found.(T)
}

func (d *driver) close(asked *request) (any, error) {
	for _, number := range asked.Objects {
		if found, known := d.objects.LoadAndDelete(number); known {
			found.(interface{ Close() }).Close()
		}
	}
	return nil, nil
}
