// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "google.golang.org/protobuf/types/known/durationpb" // so that it is registered
	_ "google.golang.org/protobuf/types/known/timestamppb"
)

// A schema as a behaviour names it.
type schemaChoice struct {
	Type       string
	Definition string
	Message    string
	Properties map[string]string
	OfClass    bool `json:"of_class"`
}

// What an application has: the client's schema, and the type of its own values.
type typedAs struct {
	schema pulsar.Schema
	value  reflect.Type
}

var numbers = map[string]typedAs{
	"INT8":   {pulsar.NewInt8Schema(nil), reflect.TypeFor[int8]()},
	"INT16":  {pulsar.NewInt16Schema(nil), reflect.TypeFor[int16]()},
	"INT32":  {pulsar.NewInt32Schema(nil), reflect.TypeFor[int32]()},
	"INT64":  {pulsar.NewInt64Schema(nil), reflect.TypeFor[int64]()},
	"FLOAT":  {pulsar.NewFloatSchema(nil), reflect.TypeFor[float32]()},
	"DOUBLE": {pulsar.NewDoubleSchema(nil), reflect.TypeFor[float64]()},
}

// nil for none.
func (choice *schemaChoice) typed() (*typedAs, error) {
	if choice == nil {
		return nil, nil
	}
	if choice.OfClass {
		return nil, cannotExpress("a schema of a class")
	}
	if found, known := numbers[choice.Type]; known {
		return &found, nil
	}
	switch choice.Type {
	case "BYTES":
		return &typedAs{schema: pulsar.NewBytesSchema(nil)}, nil
	case "STRING":
		return &typedAs{pulsar.NewStringSchema(nil), reflect.TypeFor[*string]()}, nil
	case "AVRO", "JSON":
		return choice.record()
	case "PROTOBUF", "PROTOBUF_NATIVE":
		return choice.protobuf()
	}
	return nil, cannotExpress("a schema " + choice.Type)
}

func (choice *schemaChoice) record() (*typedAs, error) {
	var definition any
	if err := json.Unmarshal([]byte(choice.Definition), &definition); err != nil {
		return nil, err
	}
	if choice.Type == "AVRO" {
		schema, err := pulsar.NewAvroSchemaWithValidation(choice.Definition, choice.Properties)
		if err != nil {
			return nil, err
		}
		return &typedAs{schema, goType(definition)}, nil
	}
	schema, err := pulsar.NewJSONSchemaWithValidation(choice.Definition, choice.Properties)
	if err != nil {
		return nil, err
	}
	return &typedAs{schema, goType(definition)}, nil
}

var plainTypes = map[string]reflect.Type{
	"boolean": reflect.TypeFor[bool](),
	"int":     reflect.TypeFor[int](),
	"long":    reflect.TypeFor[int64](),
	"float":   reflect.TypeFor[float32](),
	"double":  reflect.TypeFor[float64](),
	"string":  reflect.TypeFor[string](),
}

// The type that an application would write for a schema: a struct with tags for a record, a pointer for what may be null.
func goType(schema any) reflect.Type {
	switch given := schema.(type) {
	case string:
		return plainTypes[given]
	case []any:
		return reflect.PointerTo(goType(given[1]))
	}
	definition := schema.(map[string]any)
	switch definition["type"] {
	case "array":
		return reflect.SliceOf(goType(definition["items"]))
	case "map":
		return reflect.MapOf(reflect.TypeFor[string](), goType(definition["values"]))
	case "enum":
		return reflect.TypeFor[string]()
	}
	var fields []reflect.StructField
	for _, each := range definition["fields"].([]any) {
		field := each.(map[string]any)
		name := field["name"].(string)
		tag := reflect.StructTag(fmt.Sprintf(`json:"%s" avro:"%s"`, name, name))
		exported := strings.ToUpper(name[:1]) + name[1:]
		fields = append(fields, reflect.StructField{Name: exported, Type: goType(field["type"]), Tag: tag})
	}
	return reflect.StructOf(fields)
}

func (choice *schemaChoice) protobuf() (*typedAs, error) {
	found, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(choice.Message))
	if err != nil {
		return nil, err
	}
	message := found.New().Interface()
	typed := &typedAs{pulsar.NewProtoNativeSchemaWithMessage(message, choice.Properties), reflect.TypeOf(message).Elem()}
	if choice.Type == "PROTOBUF" {
		typed.schema, err = pulsar.NewProtoSchemaWithValidation(choice.Definition, choice.Properties)
	}
	return typed, err
}

func (typed *typedAs) client() pulsar.Schema {
	if typed == nil {
		return nil
	}
	return typed.schema
}

// Whether values are anything but bytes.
func (typed *typedAs) hasValues() bool { return typed != nil && typed.value != nil }

// A value for the client, of the JSON of a behaviour.
func (typed *typedAs) parsed(text []byte) (any, error) {
	made := reflect.New(typed.value)
	if message, is := made.Interface().(proto.Message); is {
		return message, fill(message, text)
	}
	if err := json.Unmarshal(text, made.Interface()); err != nil {
		return nil, err
	}
	if typed.value == reflect.TypeFor[*string]() {
		return made.Elem().Elem().Interface(), nil
	}
	return made.Elem().Interface(), nil
}

// The JSON of a message's value.
func (typed *typedAs) read(message pulsar.Message) ([]byte, error) {
	made := reflect.New(typed.value)
	if err := message.GetSchemaValue(made.Interface()); err != nil {
		return nil, err
	}
	return told(made.Interface())
}

func told(value any) ([]byte, error) {
	if message, is := value.(proto.Message); is {
		fields := map[string]any{}
		message.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, each protoreflect.Value) bool {
			fields[string(field.Name())] = each.Interface()
			return true
		})
		return json.Marshal(fields)
	}
	return json.Marshal(value)
}

func fill(message proto.Message, text []byte) error {
	var fields map[string]int64
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	reflected := message.ProtoReflect()
	for name, value := range fields {
		field := reflected.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field.Kind() == protoreflect.Int32Kind {
			reflected.Set(field, protoreflect.ValueOfInt32(int32(value)))
		} else {
			reflected.Set(field, protoreflect.ValueOfInt64(value))
		}
	}
	return nil
}
