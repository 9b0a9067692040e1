//go:build !linux || !(amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"errors"
	"testing"

	"github.com/sema-go/sema/host/sysv"
)

func TestOpen_IsUnsupported(t *testing.T) {
	_, keyErr := sysv.KeyOf("/", 'x')
	_, createErr := sysv.Create(1, 0o600, 1)
	_, eitherErr := sysv.OpenOrCreate(1, 0o600, 1)
	_, openErr := sysv.Open(1)
	_, anyErr := sysv.OpenAny(1)
	_, idErr := sysv.OpenID(1)
	_, listErr := sysv.List()
	_, limitsErr := sysv.CurrentLimits()
	for _, err := range []error{keyErr, createErr, eitherErr, openErr, anyErr, idErr, listErr, limitsErr, sysv.Remove(1)} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want ErrUnsupported", err)
		}
	}
}
