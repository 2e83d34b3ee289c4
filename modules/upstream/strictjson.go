// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// serverFields reads an object with fields of a server and nothing else: names
// as they are written in the configuration, each at most once. What the values
// are is not looked at.
func serverFields(raw []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("not JSON: invalid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil {
		return nil, notJSON(err)
	} else if t != json.Delim('{') {
		return nil, errors.New("expected a JSON object")
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, notJSON(err)
		}
		name := key.(string)
		if !serverFieldNames[name] {
			return nil, fmt.Errorf("unknown field %q", name)
		}
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("field %q given twice", name)
		}
		fields[name] = value
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, notJSON(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("unexpected text after the JSON object")
	}
	return fields, nil
}

// serverFieldNames are the fields of Server in JSON.
var serverFieldNames = func() map[string]bool {
	names := map[string]bool{}
	for f := range reflect.TypeFor[Server]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names[name] = true
		}
	}
	return names
}()

// serverFrom makes a server of its fields. Errors name the field.
func serverFrom(fields map[string]json.RawMessage) (*Server, error) {
	s := new(Server)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		one, err := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if err != nil {
			return nil, notJSON(err)
		}
		err = json.Unmarshal(one, s)
		var wrongType *json.UnmarshalTypeError
		switch {
		case errors.As(err, &wrongType):
			return nil, fmt.Errorf("field %q: got a JSON %s, expected %s", name, wrongType.Value, jsonName(wrongType))
		case err != nil:
			return nil, fmt.Errorf("field %q: %s", name, strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	return s, nil
}

func notJSON(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("not JSON: the text ends too early")
	}
	return fmt.Errorf("not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
}

func jsonName(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	}
	return "an object"
}
