package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
)

// Prints fails the test unless value prints as want with %v, %+v, %#v, %s and
// in log/slog. It is for values whose fields contain pointers, locks and
// secrets.
func Prints(t testing.TB, value any, want string) {
	t.Helper()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, value); got != want {
			t.Errorf("%s of a %T prints %q, want %q", verb, value, got, want)
		}
	}
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Info("test", "value", value)
	var logged struct{ Value any }
	if err := json.Unmarshal(line.Bytes(), &logged); err != nil || logged.Value != want {
		t.Errorf("log/slog prints %s of a %T, want %q", line.Bytes(), value, want)
	}
}
