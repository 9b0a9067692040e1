package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// watchEvery is how often a semaphore that is watched is looked at, and beat how
// often something is said at least, so that who has gone is noticed.
const (
	watchEvery = 500 * time.Millisecond
	beat       = 15 * time.Second
)

// watch tells how a semaphore is, and again whenever it has changed: as events for
// browsers, or else as lines of JSON.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) error {
	leave, err := s.stream(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	name := r.PathValue("name")
	if _, err := s.client.Inspect(r.Context(), name); err != nil {
		return err
	}
	ctx, cancel := until(r.Context(), s.looking)
	defer cancel()
	line, kind := "%s\n", "application/x-ndjson"
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		line, kind = "data: %s\n\n", "text/event-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return nil
	}
	out := &events{w: w, flush: http.NewResponseController(w)}
	stop := out.beat(cancel)
	defer stop()
	for snapshot, err := range s.client.Watch(ctx, name, watchEvery) {
		goesOn := s.sending(ctx, func() bool {
			var text []byte
			if err != nil {
				text, _ = json.Marshal(s.diagnose(r, err))
			} else {
				text, _ = json.Marshal(firstPage(name, snapshot))
			}
			return out.say(fmt.Sprintf(line, text))
		})
		if !goesOn {
			return nil
		}
	}
	return nil
}

// events are what a stream says, by several who do not wait for each other.
type events struct {
	flush *http.ResponseController

	mu   sync.Mutex
	w    http.ResponseWriter
	said time.Time
}

// say reports whether somebody may still listen.
func (e *events) say(text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = time.Now()
	_, err := io.WriteString(e.w, text)
	return err == nil && e.flush.Flush() == nil
}

func (e *events) silent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.said) > beat
}

// beat says an empty line when there was nothing to say for long, until it is
// stopped. gone is called when nobody listens.
func (e *events) beat(gone func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(beat / 3):
			}
			if e.silent() && !e.say("\n") {
				gone()
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
