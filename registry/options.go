package registry

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/sema-go/sema"
)

// An Option configures [New]: [Log], [PollEvery], [MaxChange] or [Each].
type Option interface{ apply(*options) }

// options are what the options set. The zero value has all defaults.
type options struct {
	logger    *slog.Logger  // nil: slog.Default
	pollEvery time.Duration // 0: defaultPoll
	maxChange float64       // 0: no bound
	each      []sema.Option // of semaphores that the registry creates
}

const defaultPoll = 5 * time.Second

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// Log sets where [Registry.Watch] logs files that it applies or rejects. Default
// slog.Default(). It panics if l is nil.
func Log(l *slog.Logger) Option {
	if l == nil {
		panic("registry: Log(nil): want a logger; leave the option out for slog.Default")
	}
	return optionFunc(func(o *options) { o.logger = l })
}

// PollEvery sets how often [Registry.Watch] reads its file. Default 5s. It panics unless d
// is positive.
func PollEvery(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("registry: PollEvery(%v): want a positive duration", d))
	}
	return optionFunc(func(o *options) { o.pollEvery = d })
}

// MaxChange rejects a file that changes a capacity or a rate by more than a factor, up or
// down: with MaxChange(10), from 40 to 4 is accepted, and to 3 is not. It finds digits that
// were lost or typed twice. The first file that is loaded is exempt, and so is a change to or
// from 0, which pauses and resumes. For a greater change, go in steps or restart. Default:
// no bound. It panics unless factor exceeds 1.
func MaxChange(factor float64) Option {
	if !(factor > 1) || math.IsInf(factor, 0) {
		panic(fmt.Sprintf("registry: MaxChange(%v): want a factor above 1", factor))
	}
	return optionFunc(func(o *options) { o.maxChange = factor })
}

// Each sets options of all semaphores that [Registry.Semaphore] creates, such as
// sema.Observe for an exporter of metrics. The options of a semaphore come after them. If
// given several times, all apply.
func Each(opts ...sema.Option) Option {
	return optionFunc(func(o *options) { o.each = append(o.each, opts...) })
}

func (o *options) log() *slog.Logger {
	if o.logger == nil {
		return slog.Default()
	}
	return o.logger
}
