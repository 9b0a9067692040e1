// Package filter selects semaphores by a text such as "db is:full wait>5s". The dashboard and
// sema top share it.
package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Subject is what a filter compares of a semaphore.
type Subject struct {
	Name string // in lower case

	Full, Waiting, Draining, Paused, Idle, Rate, Declared, Problem bool

	Wait time.Duration // of the first waiter; 0: there is none, or it is not known
	Held time.Duration // of the oldest lease; 0: there is none, or it is not known
}

// A Filter is a list of terms. The zero value matches everything.
type Filter []func(*Subject) bool

// Matches reports whether all terms match.
func (f Filter) Matches(s Subject) bool {
	for _, term := range f {
		if !term(&s) {
			return false
		}
	}
	return true
}

// conditions are the words after "is:".
var conditions = []struct {
	word string
	is   func(*Subject) bool
}{
	{"full", func(s *Subject) bool { return s.Full }},
	{"waiting", func(s *Subject) bool { return s.Waiting }},
	{"draining", func(s *Subject) bool { return s.Draining }},
	{"paused", func(s *Subject) bool { return s.Paused }},
	{"idle", func(s *Subject) bool { return s.Idle }},
	{"rate", func(s *Subject) bool { return s.Rate }},
	{"declared", func(s *Subject) bool { return s.Declared }},
	{"problem", func(s *Subject) bool { return s.Problem }},
}

// ages are the words before ">" and "<".
var ages = map[string]func(*Subject) time.Duration{
	"wait": func(s *Subject) time.Duration { return s.Wait },
	"held": func(s *Subject) time.Duration { return s.Held },
}

// Words returns the words after "is:".
func Words() (all []string) {
	for _, c := range conditions {
		all = append(all, c.word)
	}
	return all
}

// Plain reports whether a filter is one text that names contain.
func Plain(text string) bool {
	terms := strings.Fields(strings.ToLower(text))
	return len(terms) == 1 && !isCondition(terms[0])
}

// Parse parses a filter. Words that are no conditions are parts of names.
func Parse(text string) (all Filter, err error) {
	for _, term := range strings.Fields(strings.ToLower(text)) {
		one := func(s *Subject) bool { return strings.Contains(s.Name, term) }
		if isCondition(term) {
			if one, err = parseCondition(term); err != nil {
				return nil, err
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// isCondition reports whether a term is more than a part of names, which may contain "<" and ">".
func isCondition(term string) bool {
	if strings.HasPrefix(term, "is:") {
		return true
	}
	at := strings.IndexAny(term, "<>")
	if at <= 0 {
		return false
	}
	limit := strings.TrimPrefix(term[at+1:], "=")
	return ages[term[:at]] != nil || limit != "" && limit[0] >= '0' && limit[0] <= '9'
}

func parseCondition(term string) (func(*Subject) bool, error) {
	if word, ok := strings.CutPrefix(term, "is:"); ok {
		for _, c := range conditions {
			if c.word == word {
				return c.is, nil
			}
		}
		words := Words()
		last := len(words) - 1
		return nil, fmt.Errorf("%q is not a filter: use is:%s or is:%s", term, strings.Join(words[:last], ", is:"), words[last])
	}
	at := strings.IndexAny(term, "<>")
	age, over := ages[term[:at]], term[at] == '>'
	if age == nil {
		return nil, fmt.Errorf("%q is not a filter: wait and held can be compared, such as wait>5s or held>10m", term)
	}
	limit, err := limitOf(term[at+1:])
	if err != nil || limit < 0 {
		return nil, fmt.Errorf("%q is not a filter: %s needs a duration, such as %s5s or %s10m", term, term[:at+1], term[:at+1], term[:at+1])
	}
	return func(s *Subject) bool {
		if over {
			return age(s) > limit
		}
		return age(s) > 0 && age(s) < limit
	}, nil
}

// limitOf parses a duration. A number is in seconds.
func limitOf(text string) (time.Duration, error) {
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool { return !slices.Contains([]rune("0123456789."), c) }) {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || seconds > 1e9 {
			return 0, fmt.Errorf("%q is not a number of seconds", text)
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	return time.ParseDuration(text)
}
