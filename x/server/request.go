package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// parameters are the query parameters of the routes that have any, with an example of
// each. Other routes of the API reject every query.
var parameters = map[string]map[string]string{
	"POST /v1/semaphores/{name}/leases": {
		"weight": "1", "wait": "30s", "capacity": "5", "ttl": "15s", "window": "1m", "ramp": "1", "max_waiters": "100", "holder": "nightly", "hold": "connection",
		"idempotency_key": "7f1c",
	},
	"POST /v1/semaphores/{name}/drain": {"wait": "30s"},
	"GET /v1/semaphores":               {"prefix": "ci-", "limit": "100", "after": "ci-a"},
	"GET /v1/semaphores/{name}":        {"limit": "100", "after": "h7"},
}

// checkQuery rejects a query that the route would not read as the client meant it.
func checkQuery(r *http.Request, at route) error {
	if r.URL.RawQuery == "" || !strings.HasPrefix(at.path, "/v1/") {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // [url.URL.Query] would drop what cannot be parsed
		return invalid("the query %s cannot be parsed: separate parameters by & and encode other characters, such as ; as %%3B", quote(r.URL.RawQuery))
	}
	known := parameters[at.method+" "+at.path]
	for key, values := range query {
		switch _, ok := known[key]; {
		case len(known) == 0:
			return invalid("query parameter %s: this request has none", quote(key))
		case !ok:
			var examples []string
			for name, value := range known {
				examples = append(examples, name+"="+value)
			}
			slices.Sort(examples)
			return invalid("query parameter %s is unknown: want some of %s", quote(key), strings.Join(examples, " "))
		case len(values) > 1:
			return invalid("query parameter %s is given %d times", key, len(values))
		}
	}
	return nil
}

// unread returns why a body could not be read.
func unread(r *http.Request, err error) error {
	var tooLong *http.MaxBytesError
	if err == nil || errors.As(err, &tooLong) {
		return err
	}
	p := newProblem(kindInvalid, "the body cannot be read: it ended early, or its chunks are malformed")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p = newProblem(kindSlow, "the body was not complete after %v", bodyWithin)
	}
	if r.ProtoMajor == 1 {
		p.header = http.Header{"Connection": {"close"}} // where the next request would begin is not known
	}
	return p
}

// readJSON reads an object from the body, and reports whether there was one.
func readJSON(r *http.Request, into any) (given bool, err error) {
	if r.Body == nil || r.ContentLength == 0 {
		return false, nil
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil || len(bytes.TrimSpace(raw)) == 0 {
		return false, err
	}
	return true, decodeObject(raw, into)
}

// readQuery sets the fields of a struct to the parameters of the query, which [checkQuery]
// has checked.
func readQuery(r *http.Request, into any) error {
	fields := fieldsOf(into)
	for key, values := range r.URL.Query() {
		if want := setText(fields[key], values[0]); want != "" {
			return invalid("%s: %s: want %s", key, quote(values[0]), want)
		}
	}
	return nil
}

// noBody rejects a body with fields, which would be ignored.
func noBody(r *http.Request) error {
	_, err := readJSON(r, &struct{}{})
	return err
}

// decodeObject reads a JSON object into the fields of a struct. It is stricter than
// [json.Unmarshal]: a field that is unknown, spelt in other letters or given twice is an
// error, which names the field and what is wanted.
func decodeObject(raw []byte, into any) error {
	if !utf8.Valid(raw) {
		return invalid("the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := d.Token(); err != nil {
		return notJSON(err)
	} else if begin != json.Delim('{') {
		return invalid("want a JSON object, not %s; see /openapi.json", quote(string(raw)))
	}
	fields := fieldsOf(into)
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return notJSON(err)
		}
		name, _ := token.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return notJSON(err)
		}
		field, known := fields[name]
		switch {
		case !known:
			return invalid("unknown field %s; see /openapi.json", quote(name))
		case seen[name]:
			return invalid("field %q is given twice", name)
		}
		seen[name] = true
		if want := setField(field, value); want != "" {
			return invalid("%s: %s: want %s", name, clip(string(value)), want)
		}
	}
	if _, err := d.Token(); err != nil {
		return notJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid("there is more after the JSON object; see /openapi.json")
	}
	return nil
}

func notJSON(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && !strings.HasPrefix(err.Error(), "unexpected end") {
		return invalid("the body is not JSON: %v, at byte %d", err, syntax.Offset)
	}
	return invalid("the body is not complete JSON")
}

// fieldsOf returns the addresses of a struct's fields by their JSON names.
func fieldsOf(into any) map[string]any {
	value, fields := reflect.ValueOf(into).Elem(), map[string]any{}
	for _, f := range reflect.VisibleFields(value.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = value.FieldByIndex(f.Index).Addr().Interface()
		}
	}
	return fields
}

// setField sets a field to a JSON value, and returns what is wanted if that cannot be.
// A field that is null keeps its default; max_waiters has none, and then no bound.
func setField(field any, raw json.RawMessage) (want string) {
	if string(raw) == "null" {
		if bound, ok := field.(**maxWaiters); ok {
			*bound = new(maxWaiters)
		}
		return ""
	}
	switch f := field.(type) {
	case **int64:
		*f = new(int64)
		return setField(*f, raw)
	case **bool:
		*f = new(bool)
		return setField(*f, raw)
	case **duration:
		*f = new(duration)
		return setField(*f, raw)
	case *int64, **maxWaiters:
		return setText(f, string(raw))
	case *duration:
		text := string(raw)
		if raw[0] == '"' && json.Unmarshal(raw, &text) != nil {
			return wantDuration
		}
		return setText(f, text)
	case *bool:
		if json.Unmarshal(raw, f) != nil {
			return "true or false"
		}
	case *string:
		if json.Unmarshal(raw, f) != nil {
			return "a string"
		}
	case *[]json.RawMessage:
		if json.Unmarshal(raw, f) != nil {
			return "an array"
		}
	default:
		panic(fmt.Sprintf("no request has a field of type %T", field))
	}
	return ""
}

// setText sets a field to what a query says.
func setText(field any, text string) (want string) {
	switch f := field.(type) {
	case **int64:
		*f = new(int64)
		return setText(*f, text)
	case **duration:
		*f = new(duration)
		return setText(*f, text)
	case **maxWaiters:
		return parseInto(parseWaiters, f, text, wantWaiters)
	case *int64:
		return parseInto(parseWhole, f, text, wantWhole)
	case *duration:
		return parseInto(parseDuration, f, text, wantDuration)
	case *string:
		*f = text
		return ""
	}
	panic(fmt.Sprintf("no query has a parameter of type %T", field))
}

const (
	wantWhole    = "a whole number"
	wantDuration = `a duration such as "30s", or seconds`
)

// parseInto sets a field to what a text says, and returns what is wanted if it says nothing.
func parseInto[T any](parse func(string) (T, bool), field *T, text, want string) string {
	value, ok := parse(text)
	if !ok {
		return want
	}
	*field = value
	return ""
}

// parseWhole parses 3, and 3.0 and 3e0: some languages have no other numbers.
func parseWhole(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	const exact = 1 << 53
	f, err := strconv.ParseFloat(text, 64)
	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) < exact
}

func parseWaiters(text string) (*maxWaiters, bool) {
	n, ok := parseWhole(text)
	if !ok {
		return nil, false
	}
	return newMaxWaiters(n)
}

// A duration is a text like 30s, or seconds.
type duration time.Duration

// parseDuration parses a duration of less than 30 years.
func parseDuration(text string) (duration, bool) {
	const longest = 1e9
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return duration(f * float64(time.Second)), math.Abs(f) < longest // false for NaN
	}
	d, err := time.ParseDuration(text)
	return duration(d), err == nil && math.Abs(d.Seconds()) < longest
}

// MarshalJSON implements [json.Marshaler], for the log.
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

func quote(text string) string { return strconv.Quote(clip(text)) }

// clip bounds how much of a request an error repeats.
func clip(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// conditional are the requests that honour preconditions.
var conditional = []string{
	"PUT /v1/semaphores/{name}", "DELETE /v1/semaphores/{name}", "POST /v1/semaphores/{name}/drain", "POST /v1/semaphores/{name}/resume",
}

// checkConditions rejects a precondition that would be ignored, except by requests that
// change nothing.
func checkConditions(r *http.Request, at route) error {
	if at.method == http.MethodGet || !strings.HasPrefix(at.path, "/v1/") || slices.Contains(conditional, at.method+" "+at.path) {
		return nil
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if _, given := r.Header[name]; given {
			return invalid("%s: this request has no preconditions; those that change a configuration have", name)
		}
	}
	return nil
}
