package main

import (
	"regexp"
	"strings"
)

// A phrase is a form of words that prose does not use: comments, messages, documents.
type phrase struct {
	pattern *regexp.Regexp
	want    string   // what to write instead, or why not
	except  []string // texts around it, in lower case, that make it right
}

// phrases are the rules for prose. The reasons are those of the project's glossary: one
// word per concept, no personification, no clause as a subject. Words of the glossary that
// are right in another sense (line, out, have, make, hint, word) appear as phrases only.
var phrases = []phrase{
	rule(`who|whom|whoever|whomever`, "name the role: caller, client, waiter, holder, operator, user", "who="),                                              // a log attribute
	rule(`some(body|one)|no(body| one)|any(body|one)|every(body|one)`, "name the role: caller, client, waiter, holder, operator, user", "replicaof no one"), // a command of Redis
	rule(`strangers?|folks?|people`, "name the role: caller, client, operator, user"),
	rule(`unless told|told|tells?|telling`, "notify, report, pass; a default is written \"default 15s\""),
	rule(`said|says?|saying`, "report, state, contain"),
	rule(`hears?|heard|hearing`, "receive"),
	rule(`speaks?|spoke|spoken|speaking`, "send"),
	rule(`answer(s|ed|ing)?`, "reply, respond"),
	rule(`news`, "change, notification"),
	rule(`signs? of life`, "heartbeat"),
	rule(`patien(ce|t|tly)|impatient`, "timeout"),
	rule(`refus(e|es|ed|al|als|ing)`, "reject (an error), deny (authorisation)",
		"connection refused", "connections are refused", "refused, timed out", "refused tls"),
	rule(`turn(s|ed|ing)? away`, "reject"),
	rule(`(give|gives|gave|given|giving) (it |them |one |permits |a permit |the permit )?back`, "release, return"),
	rule(`(is|are|was|were|comes?|came) back`, "returned, released; available again"),
	rule(`(take|takes|took|taken|taking) (it |them |one )?(back|away)`, "revoke, cancel, remove"),
	rule(`lets? go|letting go`, "release"),
	rule(`(stand|stands|standing|stood|wait|waits|waiting) in line|(place|first|next|last) in line|the line of waiters`, "queue"),
	rule(`(be|is|are|was|were|been) let in|lets? in`, "grant, admit"),
	rule(`(permit|permits|lease|leases|one|all|it) (is|are|was|were) out([,.;:)]|$)`, "held, in use"),
	rule(`engines?`, "store", "storage engine", "|engine"), // the pattern of words that clients must not see
	rule(`wish(es|ed)?`, "request, operation"),
	rule(`fates?|verdicts?|outcomes?`, "result, status", "(was \u0060outcome", "(were \u0060outcome",
		"outcome=", "\"outcome\"", "(outcome)", "{outcome}", "\u0060outcome\u0060"), // the label of sema_acquires_total
	rule(`dead`, "expired, ended, killed", "dead rows", "dead tuples"),
	rule(`dies|died|dying`, "ends, was killed"),
	rule(`silent`, "that does not reply"),
	rule(`reign(s|ed)?|set aside|stands? aside`, "fail-open"),
	rule(`albums?|portraits?|glances?|scenes?`, "cache, history, snapshot, page, chart"),
	rule(`believ(e|es|ed|ing)|thinks?`, "no personification: assume, use"),
	rule(`(is|are|was) (when|who)`, "start with a verb: returns, reports"),
	rule(`(be|been) had`, "acquired"),
	rule(`(has|have) (it|them|a|an|the|one|each|all|its)( \w+){0,2} be`, "name the action: X does Y"),
	rule(`in a word|without a word|a word of|the word of`, "message, notification"),
	rule(`force-releas(e|es|ed)`, "revoke"),
	rule(`re-?open(s|ed)?`, "resume (a drained semaphore); open again"),
	rule(`no longer not|not un(known|used|changed|available)|nothing (is|was) not`, "no double negatives"),
	rule(`at hand|by and by|lest|thereof|hereby|whence|hence|likewise`, "use a plain word"),
}

// names are the words that identifiers and file names do not contain.
var names = map[string]string{
	"engine": "store", "engines": "stores", "wish": "request", "wishes": "requests",
	"hear": "receive", "hears": "receives", "heard": "received", "unheard": "unconfirmed", "hearing": "receiving",
	"speak": "send", "speaks": "sends", "spoke": "sent", "speaking": "sending",
	"tell": "notify", "tells": "notifies", "told": "notified",
	"said": "reported", "says": "reports", "say": "report",
	"answer": "reply", "answers": "replies", "answered": "replied",
	"news": "changes", "fate": "result", "fates": "results", "verdict": "status", "outcome": "result", "patience": "timeout",
	"refuse": "reject", "refused": "rejected", "refuses": "rejects", "refusal": "rejection", "refusing": "rejecting",
	"nobody": "the role", "somebody": "the role", "anybody": "the role", "everybody": "the role",
	"noone": "the role", "someone": "the role", "everyone": "the role",
	"who": "the role", "whom": "the role", "stranger": "the role", "people": "the role",
	"aside": "fail-open", "reign": "fail-open", "desk": "the mechanism",
	"album": "cache", "glance": "snapshot", "portrait": "snapshot", "scene": "page",
	"reopen": "resume", "reopens": "resumes", "reopened": "resumed",
	"dead": "expired", "died": "ended", "dies": "ends", "silent": "the state",
	"util": "what it does", "utils": "what it does",
}

// rule compiles a phrase. Its words may stand on different lines of a text.
func rule(words, want string, except ...string) phrase {
	words = strings.ReplaceAll(words, " ", `\s+`)
	return phrase{regexp.MustCompile(`(?i)(^|[^\w-])(` + words + `)($|[^\w-])`), want, except}
}
