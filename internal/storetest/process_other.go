//go:build !unix

package storetest

import (
	"errors"
	"syscall"
)

func sysProcAttr(Program) (*syscall.SysProcAttr, error) { return nil, nil }

func chownTo(string, string) error { return nil }

func (r *run) pause() error { return errors.ErrUnsupported }

func (r *run) resume() error { return nil }
