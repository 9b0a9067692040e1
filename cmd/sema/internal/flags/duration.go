// Package flags contains flag types that several commands of sema share.
package flags

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Absent is the default of an optional duration. Help shows no default for it; the usage text
// describes what happens without it.
const Absent time.Duration = -1

// Duration adds a flag for a duration: 30s, 5m, 1h30m.
func Duration(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*duration)(p), name, usage)
}

// A duration implements [pflag.Value].
type duration time.Duration

// Type implements [pflag.Value].
func (*duration) Type() string { return "DURATION" }

// String implements [pflag.Value]. Help shows the result as the default.
func (d *duration) String() string {
	if *d <= 0 {
		return ""
	}
	return Span(time.Duration(*d))
}

var errDuration = errors.New("want a duration with a unit, such as 30s, 5m or 1h30m")

// Set implements [pflag.Value].
func (d *duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return errDuration
	}
	if parsed < 0 {
		return fmt.Errorf("want 0 or more")
	}
	*d = duration(parsed)
	return nil
}

// Span formats a duration without trailing zeros: 1m, not 1m0s.
func Span(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
