package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

var classChoice = Choice{ID: "class", Label: "Class", Default: "free", Options: []Option{{"free", "free"}, {"paid", "paid"}}, Only: "order=classes"}

var semaphoreLesson = Lesson{
	ID: "semaphore", Title: "Semaphore", Layout: "queue",
	Teaches: "A semaphore bounds how many workers run at the same time. Its order selects which waiter is next. Add workers, and change permits and order.",
	Choices: []Choice{
		{ID: "permits", Label: "Permits", Least: 1, Most: 8, Default: "3"},
		{ID: "order", Label: "Order", Default: "fair", Options: []Option{
			{"fair", "Fair: order of arrival"}, {"unfair", "Unfair: arrivals may overtake"}, {"lifo", "LIFO: newest first"}, {"classes", "Classes by weight (wfq)"}}},
		{ID: "weights", Label: "Workers", Default: "mixed", Options: []Option{{"ones", "one permit each"}, {"mixed", "one needs 3 permits"}}},
		{ID: "free", Label: "Weight of free", Least: 1, Most: 9, Default: "1", Only: "order=classes"},
		{ID: "paid", Label: "Weight of paid", Least: 1, Most: 9, Default: "3", Only: "order=classes"},
	},
	Commands: []Command{
		{ID: "add", Label: "Add a worker", With: []Choice{
			{ID: "weight", Label: "Needs", Least: 1, Most: 8, Default: "1"},
			{ID: "hold", Label: "Holds for", Default: "1500", Options: []Option{{"500", "0.5 s"}, {"1500", "1.5 s"}, {"4000", "4 s"}}},
			classChoice}},
		{ID: "remove", Label: "Remove the newest"},
		{ID: "resize", Label: "Resize", With: []Choice{{ID: "permits", Label: "Permits", Least: 0, Most: 8, Default: "3"}}},
	},
	Code: code("lesson_semaphore.go"),
	run:  runSemaphore,
}

func runSemaphore(s *Stage, set Settings) {
	capacity := set.Int("permits")
	// code:
	var gate func(class string) sema.Gate
	var resize func(n int64)
	switch set["order"] {
	case "classes":
		q := wfq.New(capacity, sema.Name("pool"))
		q.Set("free", wfq.Share{Weight: set.Int("free")})
		q.Set("paid", wfq.Share{Weight: set.Int("paid")})
		gate, resize = func(class string) sema.Gate { return q.Class(class) }, q.Resize
	default:
		order := map[string]sema.Order{"fair": sema.Fair, "unfair": sema.Unfair, "lifo": sema.LIFO}[set["order"]]
		pool := sema.New(capacity, sema.Name("pool"), order)
		gate, resize = func(string) sema.Gate { return pool }, pool.Resize
	}
	// end
	s.why = map[string]string{"fair": " It was at the head of the queue.", "lifo": " It was the newest waiter.", "classes": " Its class had used the least of its share."}[set["order"]]
	s.showGate("pool", "pool", capacity)
	var workers []*Worker // used by commands only, which do not overlap
	names := 0
	add := func(class string, weight int64, hold, pause time.Duration) {
		name := letters(names)
		names++
		pool := watch("pool", gate(class))
		delay := time.Duration(min(len(workers), 5)) * 150 * time.Millisecond
		workers = append(workers, s.join(name, class, func(ctx context.Context, w *Worker) {
			w.sleep(delay)
			// code:
			for w.sleep(pause) {
				permit, err := pool.Acquire(ctx, weight)
				if errors.Is(err, sema.ErrTooLarge) {
					return
				} else if err != nil {
					break
				}
				w.sleep(hold) // the work
				permit.Release()
			}
			// end
		}))
	}
	s.watchWaits(5*time.Second, func(w *Worker, waited time.Duration) string {
		switch set["order"] {
		case "lifo":
			return fmt.Sprintf("%s has waited %s: LIFO serves the newest waiter first, so the oldest starves as long as others arrive.", w.Name, seconds(waited))
		case "classes":
			return fmt.Sprintf("%s (%s) has waited %s: while both classes wait, permit-seconds are shared %s to %s.", w.Name, w.Class, seconds(waited), set["free"], set["paid"])
		}
		return fmt.Sprintf("%s has waited %s. More permits or shorter holds would help; no order makes the queue shorter.", w.Name, seconds(waited))
	})
	count := 6
	if set["order"] == "unfair" {
		count = int(capacity) + 1 // one waits, and the others arrive
	}
	for i := range count {
		class, weight, pause := "free", int64(1), s.between(100*time.Millisecond, 600*time.Millisecond)
		if i%2 == 1 {
			class = "paid"
		}
		if i == 4 && set["weights"] == "mixed" {
			weight = min(3, capacity)
		}
		if i < 2 || set["order"] == "unfair" {
			pause = 0 // acquires again at once
		}
		add(class, weight, s.between(800*time.Millisecond, 1600*time.Millisecond), pause)
	}
	s.note("%s", map[string]string{
		"fair":    "Fair: a permit is handed to the waiter at the head. If it needs 3 permits, those behind it wait as well, so that it never starves.",
		"unfair":  "Unfair: a release wakes the head, which competes with arrivals: a worker that acquires again at once overtakes it. A head that has waited for a millisecond is overtaken no second time: it gets the next permit by hand-off.",
		"lifo":    "LIFO: the newest waiter is next. Those that time out first are served last: good under overload, unfair otherwise.",
		"classes": "Classes: while both wait, paid gets " + set["paid"] + " permit-seconds for " + set["free"] + " of free. Nothing is reserved: a class alone uses all permits.",
	}[set["order"]])

	s.commands["add"] = func(with Settings) error {
		if len(workers) >= 16 {
			return errors.New("add a worker: 16 are enough for one page")
		}
		add(with["class"], with.Int("weight"), time.Duration(with.Int("hold"))*time.Millisecond, 300*time.Millisecond)
		return nil
	}
	s.commands["remove"] = func(Settings) error {
		if len(workers) == 0 {
			return errors.New("remove a worker: none is left")
		}
		workers[len(workers)-1].end()
		workers = workers[:len(workers)-1]
		return nil
	}
	s.commands["resize"] = func(with Settings) error {
		n := with.Int("permits")
		resize(n)
		s.showGate("pool", "pool", n)
		switch {
		case n == 0:
			s.note("Capacity 0 pauses the semaphore: permits in use stay held, and all callers wait.")
		default:
			s.note("Resized to %d while it is used. A shrink revokes nothing: releases pay the debt before the queue is served again.", n)
		}
		return nil
	}
}

func letters(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return letters(i/26-1) + letters(i%26)
}
