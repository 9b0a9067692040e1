package main

import (
	"context"
	"time"
)

// A subscription stands for the client of a broker, such as that of Kafka. It is used by
// one goroutine.
type subscription struct {
	next, left int
	paused     bool
	pauses     int
}

// batch is the most messages that one poll returns.
const batch = 10

// poll returns the next messages. It returns none while the subscription is paused, and
// false once there are no more. A client of a real broker also sends its heartbeat here.
func (s *subscription) poll(ctx context.Context) (messages []int, more bool, err error) {
	if s.paused {
		select {
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		case <-time.After(time.Millisecond): // the timeout of the poll
		}
		return nil, true, nil
	}
	for range min(batch, s.left) {
		messages = append(messages, s.next)
		s.next++
		s.left--
	}
	return messages, len(messages) > 0, ctx.Err()
}

func (s *subscription) pause() {
	if !s.paused {
		s.paused = true
		s.pauses++
	}
}

func (s *subscription) resume() { s.paused = false }
