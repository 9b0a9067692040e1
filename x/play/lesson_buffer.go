package play

import (
	"context"
	"fmt"
	"time"

	"github.com/sema-go/sema/classic"
)

var bufferLesson = Lesson{
	ID: "buffer", Title: "Bounded buffer", Layout: "buffer",
	Teaches: "A bounded buffer connects producers and consumers of different speeds. Producers wait while it is full, consumers while it is empty: backpressure. Always empty + full = capacity.",
	Choices: []Choice{
		{ID: "slots", Label: "Slots", Least: 1, Most: 8, Default: "4"},
		{ID: "speed", Label: "Faster", Default: "producers", Options: []Option{{"producers", "producers"}, {"consumers", "consumers"}, {"neither", "neither"}}},
		{ID: "producers", Label: "Producers", Least: 1, Most: 4, Default: "3"},
		{ID: "consumers", Label: "Consumers", Least: 1, Most: 4, Default: "2"},
	},
	Code: code("lesson_buffer.go"),
	run:  runBuffer,
}

func runBuffer(s *Stage, set Settings) {
	// code:
	buffer := classic.NewBuffer[int](int(set.Int("slots")))
	// end
	s.showGate("buffer", "buffer", set.Int("slots"))
	make, use := 900*time.Millisecond, 900*time.Millisecond // per item, of all workers of a kind together
	switch set["speed"] {
	case "producers":
		use = 1500 * time.Millisecond
	case "consumers":
		make = 1500 * time.Millisecond
	}
	level := func(w *Worker) {
		s.send(Event{Kind: KindLevel, Gate: "buffer", Worker: w.Name, N: int64(buffer.Len())})
	}
	item := 0
	next := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		item++
		return item
	}
	for i := range int(set.Int("producers")) {
		s.join(fmt.Sprint("P", i+1), "producer", func(ctx context.Context, w *Worker) {
			pause := make * time.Duration(set.Int("producers"))
			// code:
			for w.sleep(s.between(pause*3/4, pause*5/4)) { // produces
				item := next()
				// end
				ends := w.asks("buffer", 1)
				// code+:
				err := buffer.Put(ctx, item) // waits while the buffer is full
				// end
				waited := ends(err)
				if err != nil {
					return
				}
				level(w)
				s.send(Event{Kind: KindReleased, Worker: w.Name, Gate: "buffer", N: 1, Text: fmt.Sprint(item), Caption: putCaption(w, item, waited)})
				// code+:
			}
			// end
		})
	}
	for i := range int(set.Int("consumers")) {
		s.join(fmt.Sprint("C", i+1), "consumer", func(ctx context.Context, w *Worker) {
			pause := use * time.Duration(set.Int("consumers"))
			// code:
			for {
				// end
				ends := w.asks("buffer", 1)
				// code+:
				item, err := buffer.Take(ctx) // waits while it is empty
				// end
				waited := ends(err)
				if err != nil {
					return
				}
				level(w)
				s.send(Event{Kind: KindReleased, Worker: w.Name, Gate: "buffer", N: 1, Text: fmt.Sprint(item), Caption: takeCaption(w, item, waited)})
				// code+:
				w.sleep(s.between(pause*3/4, pause*5/4)) // consumes item
			}
			// end
		})
	}
	s.note("Items leave in the order in which they came. A hand-off to a waiting consumer is one step: no item passes through a race.")
}

func putCaption(w *Worker, item int, waited time.Duration) string {
	if waited > time.Millisecond {
		return fmt.Sprintf("The buffer was full: %s waited %s for an empty slot, and has put item %d. Backpressure slows producers to the speed of the consumers.", w.Name, seconds(waited), item)
	}
	return fmt.Sprintf("%s puts item %d.", w.Name, item)
}

func takeCaption(w *Worker, item int, waited time.Duration) string {
	if waited > time.Millisecond {
		return fmt.Sprintf("The buffer was empty: %s waited %s, and receives item %d directly.", w.Name, seconds(waited), item)
	}
	return fmt.Sprintf("%s takes item %d.", w.Name, item)
}
