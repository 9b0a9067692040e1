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

// parameters maps routes to their query parameters, with an example of each. Other routes of
// the API reject every query.
var parameters = map[string]map[string]string{
	"POST /v1/semaphores/{name}/leases": {
		"weight": "1", "wait": "30s", "capacity": "5", "ttl": "15s", "window": "1m", "ramp": "1", "max_waiters": "100", "numbered": "true", "holder": "nightly", "hold": "connection",
		"idempotency_key": "7f1c",
	},
	"POST /v1/semaphores/{name}/drain":  {"wait": "30s"},
	"GET /v1/semaphores/{name}/history": {"range": "1h"},
	"GET /v1/semaphores":                {"prefix": "ci-", "limit": "100", "after": "ci-a"},
	"GET /v1/semaphores/{name}":         {"limit": "100", "after": "h7"},
}

// checkQuery rejects queries with parameters that are malformed, unknown or repeated.
func checkQuery(r *http.Request, at route) error {
	if !strings.HasPrefix(at.path, "/v1/") {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // [url.URL.Query] would drop malformed parameters
		return invalid("the query %s cannot be parsed: separate parameters by & and encode other characters, such as ; as %%3B", quote(r.URL.RawQuery))
	}
	known := parameters[at.method+" "+at.path]
	for key, values := range query {
		switch _, ok := known[key]; {
		case len(known) == 0:
			return invalid("query parameter %s: this request takes none", quote(key))
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

// bodyError converts the error of reading a body.
func bodyError(r *http.Request, err error) error {
	var tooLong *http.MaxBytesError
	if err == nil || errors.As(err, &tooLong) {
		return err
	}
	p := newProblem(kindInvalid, "the body cannot be read: it ended early, or its chunks are malformed")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p = newProblem(kindSlow, "the body was not complete after %v", bodyTimeout)
	}
	if r.ProtoMajor == 1 {
		p.header = http.Header{"Connection": {"close"}} // the start of the next request is unknown
	}
	return p
}

// readJSON reads a JSON object from the body, and reports whether there was one.
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

// readQuery sets the fields of a struct from the query, which [checkQuery] has checked.
func readQuery(r *http.Request, into any) error {
	fields := fieldsOf(into)
	for key, values := range r.URL.Query() {
		if want := setText(fields[key], values[0]); want != "" {
			return invalid("%s: %s: want %s", key, quote(values[0]), want)
		}
	}
	return nil
}

// rejectBody rejects a body that has fields, because they would be ignored.
func rejectBody(r *http.Request) error {
	_, err := readJSON(r, &struct{}{})
	return err
}

// decodeObject decodes a JSON object into the fields of a struct. It is stricter than
// [json.Unmarshal]: a field that is unknown, in another letter case or given twice is an
// error. The error names the field and the wanted type.
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
		return invalid("there is data after the JSON object; see /openapi.json")
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

// fieldsOf returns pointers to the fields of a struct, by JSON name.
func fieldsOf(into any) map[string]any {
	value, fields := reflect.ValueOf(into).Elem(), map[string]any{}
	for _, f := range reflect.VisibleFields(value.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = value.FieldByIndex(f.Index).Addr().Interface()
		}
	}
	return fields
}

// setField sets a field to a JSON value. If the value is invalid, it returns a description
// of valid ones. null keeps the default of a field; for max_waiters, it means no bound.
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
		return setText(f, string(raw))
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

// setText sets a field to the value of a query parameter, like [setField].
func setText(field any, text string) (want string) {
	switch f := field.(type) {
	case **int64:
		*f = new(int64)
		return setText(*f, text)
	case **duration:
		*f = new(duration)
		return setText(*f, text)
	case **bool:
		*f = new(bool)
		return setText(*f, text)
	case **maxWaiters:
		return parseInto(parseWaiters, f, text, wantWaiters)
	case *bool:
		return parseInto(parseTruth, f, text, wantTruth)
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
	wantTruth    = "true or false"
	wantDuration = `a duration such as "30s", or seconds`
)

// parseInto sets a field to a parsed text, or returns want if the text cannot be parsed.
func parseInto[T any](parse func(string) (T, bool), field *T, text, want string) string {
	value, ok := parse(text)
	if !ok {
		return want
	}
	*field = value
	return ""
}

// parseWhole parses an integer, also as 3.0 and 3e0: some languages have only floating-point
// numbers.
func parseWhole(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	const exact = 1 << 53
	f, err := strconv.ParseFloat(text, 64)
	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) < exact
}

func parseTruth(text string) (truth, ok bool) {
	return text == "true", text == "true" || text == "false"
}

func parseWaiters(text string) (*maxWaiters, bool) {
	n, ok := parseWhole(text)
	if !ok {
		return nil, false
	}
	return newMaxWaiters(n)
}

// A duration is a text such as 30s, or a number of seconds.
type duration time.Duration

// parseDuration parses a duration of less than about 30 years.
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

// clip bounds how much of a request an error message repeats.
func clip(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// conditional lists the routes that support preconditions.
var conditional = []string{
	"PUT /v1/semaphores/{name}", "DELETE /v1/semaphores/{name}", "POST /v1/semaphores/{name}/drain", "POST /v1/semaphores/{name}/resume",
}

// checkConditions rejects preconditions on routes that would ignore them, except for GET.
func checkConditions(r *http.Request, at route) error {
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if _, given := r.Header[name]; given && !supportsConditions(at) {
			return invalid("%s: only requests that change a configuration support preconditions", name)
		}
	}
	return nil
}

// supportsConditions reports whether a route supports preconditions, or may ignore them.
func supportsConditions(at route) bool {
	return at.method == http.MethodGet || !strings.HasPrefix(at.path, "/v1/") || slices.Contains(conditional, at.method+" "+at.path)
}
