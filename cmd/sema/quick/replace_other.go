//go:build !unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// replace runs a program and returns its exit code as an error. Ctrl-C is left to the program,
// which the system also interrupts.
func replace(path string, args []string) error {
	signal.Ignore(os.Interrupt)
	program := exec.Command(path, args...)
	program.Stdin, program.Stdout, program.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := program.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return &exit.Error{Code: ended.ExitCode()}
	}
	return err
}
