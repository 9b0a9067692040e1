//go:build !unix

package enginetest

import (
	"errors"
	"syscall"
)

func attributes(Program) (*syscall.SysProcAttr, error) { return nil, nil }

func own(string, string) error { return nil }

func (r *run) freeze() error { return errors.ErrUnsupported }

func (r *run) thaw() error { return nil }
