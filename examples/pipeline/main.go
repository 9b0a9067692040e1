// Command pipeline reads messages from a broker, decodes them and writes them, in three
// stages with bounded buffers between them. A slow stage slows down those before it: that
// is backpressure. The consumer of the broker may not block, because a broker drops a
// consumer that does not poll. So the first stage pauses its subscription while the
// buffer is full, continues to poll, and resumes when half of the buffer is free.
//
//	go run ./examples/pipeline
//
// It first pauses the last stage, as an operator would whose database is down, until all
// stages wait. It prints how many messages were fetched by then: no more, however long
// that takes. Then it resumes the last stage, and prints what was written. Its exit code
// is 1 if a message was lost or out of order.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"github.com/sema-go/sema/examples/internal/peak"
	"github.com/sema-go/sema/group"
)

func main() {
	messages := flag.Int("messages", 500, "messages in the broker")
	buffer := flag.Int("buffer", 16, "capacity of each buffer")
	flag.Parse()
	if *buffer < 1 || *messages < 2**buffer+2 { // fewer do not fill the stages
		fmt.Fprintln(os.Stderr, "pipeline: want a buffer of at least 1, and messages for twice that and 2 more")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *messages, *buffer); err != nil {
		fmt.Fprintln(os.Stderr, "pipeline:", err)
		os.Exit(1)
	}
}

// run runs the stages, pauses the last one, and resumes it.
func run(ctx context.Context, messages, buffer int) error {
	p := &pipeline{
		source:  &subscription{left: messages},
		raw:     classic.NewBuffer[int](buffer, sema.Name("raw")),
		decoded: classic.NewBuffer[string](buffer, sema.Name("decoded")),
		writing: sema.New(0, sema.Name("writing")), // paused
	}
	g := group.New(ctx, nil) // one goroutine a stage, so that messages stay in order
	g.Go(p.fetch)
	g.Go(p.decode)
	g.Go(p.write)

	for !p.waits() && g.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("writing paused: %d messages in the pipeline, buffers of %d and %d full\n", p.inside.Most(), p.raw.Len(), p.decoded.Len())
	p.writing.Resize(1)
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Printf("writing resumed: %d messages written in order, at most %d in the pipeline\n", p.written, p.inside.Most())
	fmt.Printf("subscription paused %d times\n", p.source.pauses)
	if p.written != messages {
		return fmt.Errorf("%d of %d messages written", p.written, messages)
	}
	return nil
}

type pipeline struct {
	source  *subscription // of the stage fetch alone, until it has ended
	raw     *classic.Buffer[int]
	decoded *classic.Buffer[string]
	writing *sema.Semaphore // capacity 0 pauses the last stage
	written int             // of the stage write alone, until it has ended
	inside  peak.Meter      // messages fetched and not written
}

// fetch polls the subscription, and pauses it while there is no room.
func (p *pipeline) fetch(ctx context.Context) error {
	defer p.raw.Close()
	var pending []int // of the last poll, without room so far
	for {
		for len(pending) > 0 && p.raw.TryPut(pending[0]) {
			pending = pending[1:]
		}
		switch room := p.raw.Cap() - p.raw.Len(); {
		case len(pending) > 0:
			p.source.pause()
		case 2*room >= p.raw.Cap():
			p.source.resume()
		}
		fetched, more, err := p.source.poll(ctx)
		if err != nil || !more && len(pending) == 0 {
			return err
		}
		p.inside.Add(int64(len(fetched)))
		pending = append(pending, fetched...)
	}
}

// decode runs the stage in the middle. It waits while one buffer is empty or the other full.
func (p *pipeline) decode(ctx context.Context) error {
	defer p.decoded.Close()
	for message, err := range p.raw.All(ctx) {
		if err != nil {
			return err
		}
		if err := p.decoded.Put(ctx, fmt.Sprintf("message %d", message)); err != nil {
			return err
		}
	}
	return nil
}

// write runs the last stage. Each message needs a permit, so that an operator can pause it.
func (p *pipeline) write(ctx context.Context) error {
	for text, err := range p.decoded.All(ctx) {
		if err != nil {
			return err
		}
		err := sema.Do(ctx, p.writing, 1, func(context.Context) error {
			if want := fmt.Sprintf("message %d", p.written); text != want {
				return fmt.Errorf("%s written in place of %s", text, want)
			}
			p.written++
			p.inside.Add(-1)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waits reports whether the stages decode and write wait, and the buffers are full.
func (p *pipeline) waits() bool {
	return p.writing.Stats().Waiters == 1 && p.decoded.Stats().Puts.Waiters == 1 && p.raw.Len() == p.raw.Cap()
}
