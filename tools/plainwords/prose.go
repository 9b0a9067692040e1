package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// checkWords checks a piece of prose that starts at a line of a file.
func checkWords(name string, line int, prose string) (findings []finding) {
	for _, r := range phrases {
		for at := range matches(r.pattern, prose) {
			from := strings.LastIndexByte(prose[:at.from], '\n') + 1
			to := len(prose)
			if end := strings.IndexByte(prose[at.to:], '\n'); end >= 0 {
				to = at.to + end
			}
			around := strings.ToLower(prose[from:to])
			if slices.ContainsFunc(r.except, func(e string) bool { return strings.Contains(around, e) }) {
				continue
			}
			found := strings.Join(strings.Fields(prose[at.from:at.to]), " ")
			findings = append(findings, finding{name, line + strings.Count(prose[:at.from], "\n"), fmt.Sprintf("%q", found), r.want})
		}
	}
	return findings
}

// A span is the place of a match, as indexes into the prose.
type span struct{ from, to int }

// matches yields the places of the words of a rule: its second group. A match may use the
// character after the one before it as its left border, which FindAll would skip.
func matches(pattern *regexp.Regexp, prose string) func(yield func(span) bool) {
	return func(yield func(span) bool) {
		for start := 0; start < len(prose); {
			at := pattern.FindStringSubmatchIndex(prose[start:])
			if at == nil || !yield(span{start + at[4], start + at[5]}) {
				return
			}
			start += at[5]
		}
	}
}

// maxSentence is how many words a sentence of a comment may have. The guide asks for 25;
// the rest is for lists of errors or conditions.
const maxSentence = 40

// sentenceEnd separates sentences. A colon or semicolon counts as an end.
var sentenceEnd = regexp.MustCompile(`[.!?:;]\)?\s+`)

// checkSentences reports sentences of a comment that are too long to be read at once.
func checkSentences(name string, line int, prose string) (findings []finding) {
	for _, paragraph := range strings.Split(prose, "\n\n") {
		if strings.HasPrefix(paragraph, "\t") || strings.HasPrefix(paragraph, "  ") {
			continue // code or a list
		}
		for _, sentence := range sentenceEnd.Split(paragraph, -1) {
			if n := len(strings.Fields(sentence)); n > maxSentence {
				findings = append(findings, finding{name, line, fmt.Sprintf("a sentence of %d words: %q", n, firstWords(sentence, 8)), "one fact per sentence"})
			}
		}
	}
	return findings
}

func firstWords(s string, n int) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(n, len(words))], " ")
}
