// Package engine is what the commands that look after engines have in common: how
// a store is named, and with what code the program ends.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/host"
)

// Codes that the program ends with, as in sysexits.h where there is one.
const (
	Problems    = 1  // what was asked for was done, and it does not look good
	Usage       = 64 // the command line makes no sense
	Unavailable = 69 // the engine was not reached
	Interrupted = 130
)

// An Error ends the program with a code. Said is true if people have been told
// already, so that the program need not.
type Error struct {
	Code int
	Err  error
	Said bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ExitCode is what the program ends with.
func (e *Error) ExitCode() int { return e.Code }

// Misused is for a command line that makes no sense.
func Misused(format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// Unreached returns the error of a store that cannot be reached. One with a code of
// its own keeps it.
func Unreached(err error) error {
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	return &Error{Code: Unavailable, Err: fmt.Errorf("%w; try 'sema doctor'", err)}
}

// IsHost reports whether a store is this machine: "host:", or nothing.
func IsHost(store string) bool { return store == "" || strings.HasPrefix(store, "host:") }

// HostOptions are those of host:, host:/directory, also as host:?dir=/directory,
// and host:?group=name.
func HostOptions(store string) (opts []host.Option, err error) {
	const wanted = "want host:, host:/directory or host:?group=name"
	u, err := url.Parse(cmp.Or(store, "host:"))
	if err != nil || u.Opaque != "" || u.Host != "" || u.User != nil || u.Fragment != "" {
		return nil, Misused("the store of this machine: %s", wanted)
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, Misused("host: what follows the ? cannot be parsed; %s", wanted)
	}
	if u.Path != "" {
		opts = append(opts, host.Dir(u.Path))
	}
	for key, value := range values {
		switch {
		case len(value) != 1:
			return nil, Misused("host: %s is given %d times", key, len(value))
		case key == "dir":
			opts = append(opts, host.Dir(value[0]))
		case key == "group":
			opts = append(opts, host.ShareWithGroup(value[0]))
		default:
			return nil, Misused("host: %s is not known; %s", key, wanted)
		}
	}
	return opts, nil
}

// Shown is a store without what is secret, and without its settings.
func Shown(store string) string {
	if IsHost(store) {
		return strings.TrimSpace("host: " + strings.TrimPrefix(strings.TrimPrefix(store, "host:"), "?"))
	}
	u, err := url.Parse(store)
	if err != nil {
		return "the store" // the text of the error has all of it
	}
	if u.Host == "" && u.Path == "" {
		return u.Scheme + ":" + u.Opaque
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// CodeOf is what the program ends with after an error.
func CodeOf(err error) int {
	var coded interface{ ExitCode() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.ExitCode()
	}
	return Usage // what cobra says of flags and arguments has no code
}

// WasSaid reports whether people have been told of an error already.
func WasSaid(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Said
}

// closing is how long an engine has to hear the last words.
const closing = 5 * time.Second

// Close ends the use of an engine, whatever has ended before.
func Close(client *fleet.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	return client.Close(ctx, fleet.ReleasePermits)
}

// ScratchName is one of a semaphore that nobody else uses, for people to know
// which command has made it.
func ScratchName(command string) string {
	return fmt.Sprintf("sema-%s-%08x", command, rand.Uint32())
}
