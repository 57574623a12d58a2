// SPDX-License-Identifier: Apache-2.0

// The calls of Go's admin library, by name and with arguments from JSON, and how each one ended.
//
// Reads {"url": ..., "calls": [["Topics.Create", argument, ...], ...]}; writes {"outcomes": [{"code", "text"}, ...],
// "uncalled": [...]}. A code of 0 is success, -1 an error of the library itself. Without calls every method is uncalled.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strings"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin/config"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

type request struct {
	URL   string              `json:"url"`
	Calls [][]json.RawMessage `json:"calls"`
}

type outcome struct {
	Code int    `json:"code"`
	Text string `json:"text"`
}

const ofTheLibrary = -1

var parsers = map[reflect.Type]func(string) (any, error){
	reflect.TypeFor[utils.TopicName]():     func(name string) (any, error) { return value(utils.GetTopicName(name)) },
	reflect.TypeFor[utils.NameSpaceName](): func(name string) (any, error) { return value(utils.GetNamespaceName(name)) },
}

func value[T any](parsed *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return *parsed, nil
}

// Method name -> function, without the variants that differ only in taking a context.
func methods(url string) (map[string]reflect.Value, error) {
	client, err := admin.New(&config.Config{WebServiceURL: url})
	if err != nil {
		return nil, err
	}
	all := map[string]reflect.Value{}
	for group, of := range map[string]any{
		"Clusters": client.Clusters(), "Tenants": client.Tenants(), "Namespaces": client.Namespaces(),
		"Topics": client.Topics(), "Subscriptions": client.Subscriptions(), "Schemas": client.Schemas(),
		"NsIsolationPolicy": client.NsIsolationPolicy(), "Brokers": client.Brokers(),
		"BrokerStats": client.BrokerStats(), "ResourceQuotas": client.ResourceQuotas(),
		"TopicPolicies": client.(admin.TopicPoliciesProvider).TopicPolicies(false),
	} {
		methods := reflect.ValueOf(of)
		for at := range methods.NumMethod() {
			if name := methods.Type().Method(at).Name; !strings.HasSuffix(name, "WithContext") {
				all[group+"."+name] = methods.Method(at)
			}
		}
	}
	return all, nil
}

func argument(kind reflect.Type, content json.RawMessage) (reflect.Value, error) {
	made := reflect.New(kind)
	parse, known := parsers[kind]
	if !known {
		err := json.Unmarshal(content, made.Interface())
		if err == nil && kind.Kind() == reflect.Struct {
			err = hidden(made.Elem(), content)
		}
		return made.Elem(), err
	}
	var name string
	if err := json.Unmarshal(content, &name); err != nil {
		return made.Elem(), err
	}
	parsed, err := parse(name)
	if err == nil {
		made.Elem().Set(reflect.ValueOf(parsed))
	}
	return made.Elem(), err
}

// Fields that the library keeps out of its JSON, because they are parts of a path: here they have their Go names.
func hidden(made reflect.Value, content json.RawMessage) error {
	given := map[string]json.RawMessage{}
	if err := json.Unmarshal(content, &given); err != nil {
		return err
	}
	for at := range made.NumField() {
		field := made.Type().Field(at)
		text, named := given[field.Name]
		if !named || field.Tag.Get("json") != "-" {
			continue
		}
		if err := json.Unmarshal(text, made.Field(at).Addr().Interface()); err != nil {
			return err
		}
	}
	return nil
}

func call(method reflect.Value, given []json.RawMessage) (outcome, error) {
	arguments := []reflect.Value{}
	kinds := method.Type()
	for at := range kinds.NumIn() {
		if kinds.In(at) == reflect.TypeFor[context.Context]() {
			arguments = append(arguments, reflect.ValueOf(context.Background()))
			continue
		}
		if kinds.IsVariadic() && at == kinds.NumIn()-1 {
			break
		}
		if len(given) == 0 {
			return outcome{}, fmt.Errorf("an argument of type %s is missing", kinds.In(at))
		}
		made, err := argument(kinds.In(at), given[0])
		if err != nil {
			return outcome{}, err
		}
		arguments, given = append(arguments, made), given[1:]
	}
	if len(given) > 0 {
		return outcome{}, errors.New("there are arguments too many")
	}
	results := method.Call(arguments)
	err, _ := results[len(results)-1].Interface().(error)
	return ended(results[0], err), nil
}

func ended(result reflect.Value, err error) outcome {
	if err == nil {
		text, _ := json.Marshal(result.Interface())
		return outcome{0, string(text)}
	}
	var refused rest.Error
	if errors.As(err, &refused) {
		return outcome{refused.Code, refused.Reason}
	}
	return outcome{ofTheLibrary, err.Error()}
}

func walk(wanted request, answers io.Writer) error {
	uncalled, err := methods(wanted.URL)
	if err != nil {
		return err
	}
	all := map[string]reflect.Value{}
	for name, method := range uncalled {
		all[name] = method
	}
	outcomes := []outcome{}
	for _, each := range wanted.Calls {
		var name string
		if err := json.Unmarshal(each[0], &name); err != nil {
			return err
		}
		method, known := all[name]
		if !known {
			return fmt.Errorf("the library has no %s", name)
		}
		delete(uncalled, name)
		how, err := call(method, each[1:])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		outcomes = append(outcomes, how)
	}
	left := []string{}
	for name, method := range uncalled {
		left = append(left, fmt.Sprintf("%s %s", name, method.Type()))
	}
	sort.Strings(left)
	return json.NewEncoder(answers).Encode(map[string]any{"outcomes": outcomes, "uncalled": left})
}

func main() {
	answers := os.Stdout
	os.Stdout = os.Stderr // the library prints some of its errors
	var wanted request
	err := json.NewDecoder(os.Stdin).Decode(&wanted)
	if err == nil {
		err = walk(wanted, answers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
