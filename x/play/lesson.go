package play

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// A Lesson is a program that shows one thing.
type Lesson struct {
	ID       string    `json:"id"`
	Title    string    `json:"title"`
	Teaches  string    `json:"teaches"`
	Layout   string    `json:"layout"` // how the page arranges the gates: "queue", "buffer", "room", "table", "bucket", "lease"
	Choices  []Choice  `json:"choices"`
	Commands []Command `json:"commands"`
	Code     string    `json:"code"` // the lines of the source that use Sema
	run      func(*Stage, Settings)
}

// A Choice is a setting of a lesson, from a list or a range of numbers.
type Choice struct {
	ID      string   `json:"id"`
	Label   string   `json:"label"`
	Options []Option `json:"options,omitempty"`
	Least   int      `json:"least"` // of a number
	Most    int      `json:"most"`
	Default string   `json:"default"`
	Only    string   `json:"only,omitempty"` // "order=classes": shown only with that setting
}

// An Option is a value of a [Choice].
type Option struct {
	Value string `json:"value"`
	Label string `json:"label"`
}

// A Command is what the user can do while a lesson runs.
type Command struct {
	ID    string   `json:"id"`
	Label string   `json:"label"`
	With  []Choice `json:"with,omitempty"`
}

// Settings are values of choices, by ID.
type Settings map[string]string

// Int returns a number; it was validated before.
func (s Settings) Int(id string) int64 {
	n, _ := strconv.ParseInt(s[id], 10, 64)
	return n
}

// Lessons returns all lessons in the order in which they build on each other.
func Lessons() []Lesson {
	return []Lesson{semaphoreLesson, bufferLesson, readersLesson, tableLesson, inversionLesson, rateLesson, leaseLesson}
}

// Find returns the lesson with an ID.
func Find(id string) (Lesson, error) {
	all := Lessons()
	i := slices.IndexFunc(all, func(l Lesson) bool { return l.ID == id })
	if i < 0 {
		return Lesson{}, fmt.Errorf("find a lesson: %q is none of them", id)
	}
	return all[i], nil
}

// Start runs a lesson until Stop. emit receives one event at a time, in order.
func (l Lesson) Start(chosen Settings, emit func(Event)) (*Stage, error) {
	set, err := complete(l.Choices, chosen)
	if err != nil {
		return nil, fmt.Errorf("start lesson %s: %w", l.ID, err)
	}
	s := &Stage{lesson: l, began: time.Now(), emit: emit, random: rand.New(rand.NewPCG(1, 2)), commands: map[string]func(Settings) error{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	l.run(s, set)
	return s, nil
}

// complete returns the settings with defaults filled in. It fails on IDs and values that are
// none of the choices.
func complete(choices []Choice, chosen Settings) (Settings, error) {
	set := Settings{}
	for _, c := range choices {
		set[c.ID] = c.Default
	}
	for id, value := range chosen {
		i := slices.IndexFunc(choices, func(c Choice) bool { return c.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("%q is no setting", id)
		}
		if c := choices[i]; !c.allows(value) {
			return nil, fmt.Errorf("%s %q is not a value of this setting", id, value)
		}
		set[id] = value
	}
	return set, nil
}

func (c Choice) allows(value string) bool {
	if c.Options != nil {
		return slices.ContainsFunc(c.Options, func(o Option) bool { return o.Value == value })
	}
	n, err := strconv.Atoi(value)
	return err == nil && n >= c.Least && n <= c.Most
}
