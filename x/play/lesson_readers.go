package play

import (
	"context"
	"fmt"
	"time"

	"github.com/sema-go/sema/classic"
)

var readersLesson = Lesson{
	ID: "readers", Title: "Readers and writers", Layout: "room",
	Teaches: "Any number of readers share the lock, and a writer has it alone. Each policy decides which side may starve: compare the three.",
	Choices: []Choice{
		{ID: "policy", Label: "Policy", Default: "readers", Options: []Option{
			{"fair", "FairRW: order of arrival"}, {"readers", "PreferReaders: writers may starve"}, {"writers", "PreferWriters: readers may starve"}}},
		{ID: "readers", Label: "Readers", Least: 1, Most: 6, Default: "4"},
		{ID: "writers", Label: "Writers", Least: 1, Most: 4, Default: "2"},
	},
	Code: code("lesson_readers.go"),
	run:  runReaders,
}

func runReaders(s *Stage, set Settings) {
	// code:
	policy := map[string]classic.Preference{
		"fair": classic.FairRW, "readers": classic.PreferReaders, "writers": classic.PreferWriters,
	}[set["policy"]]
	lock := classic.NewRWLock(policy)
	reader, writer := watch("lock", lock.Reader()), watch("lock", lock.Writer())
	// end
	s.showGate("lock", "lock", set.Int("readers"))
	for i := range int(set.Int("readers")) {
		s.join(fmt.Sprint("R", i+1), "reader", func(ctx context.Context, w *Worker) {
			w.sleep(time.Duration(i) * 400 * time.Millisecond)
			// code:
			for {
				permit, err := reader.Acquire(ctx, 1)
				if err != nil {
					return
				}
				w.sleep(s.between(1000*time.Millisecond, 2000*time.Millisecond)) // reads
				permit.Release()
				w.sleep(s.between(100*time.Millisecond, 300*time.Millisecond))
			}
			// end
		})
	}
	for i := range int(set.Int("writers")) {
		s.join(fmt.Sprint("W", i+1), "writer", func(ctx context.Context, w *Worker) {
			w.sleep(time.Duration(i)*300*time.Millisecond + time.Second)
			// code:
			for {
				permit, err := writer.Acquire(ctx, 1)
				if err != nil {
					return
				}
				w.sleep(900 * time.Millisecond) // writes
				permit.Release()
				w.sleep(s.between(200*time.Millisecond, 500*time.Millisecond))
			}
			// end
		})
	}
	s.watchWaits(4*time.Second, func(w *Worker, waited time.Duration) string {
		text := fmt.Sprintf("%s has waited %s. ", w.Name, seconds(waited))
		switch {
		case set["policy"] == "readers" && w.Class == "writer":
			return text + "Starvation: as long as one reader is inside, PreferReaders admits the next one, and the lock is never free."
		case set["policy"] == "writers" && w.Class == "reader":
			return text + "Starvation: as long as a writer waits, PreferWriters admits no reader."
		}
		return text + "It is served in its turn."
	})
	s.note("%s", map[string]string{
		"fair":    "FairRW: a waiting writer stops readers that arrive later. So neither side starves; readers between two writers enter together.",
		"readers": "PreferReaders: readers enter whenever no writer is inside. Watch how long the writers wait.",
		"writers": "PreferWriters: a waiting writer goes first. With writers that return soon, the readers wait.",
	}[set["policy"]])
}
