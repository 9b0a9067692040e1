/*
 * One waiter watches the context that several share: line.go, and park, leave
 * and compete of park.go.
 *
 * Waiters of one context, and with OTHER one of another, ask for one permit
 * each. Both contexts end, at any moment. A waiter may also have a wait limit,
 * which passes at any moment. Whoever is granted the permit keeps it for good
 * or gives it to the next. So nobody is sure to be served, and a follower that
 * nobody tells of the end sleeps for ever: an invalid end state.
 *
 * The word is left to handoff.pml: a give always goes to the lock here, as if
 * a flag were up. One step is taking or leaving the mutex, or one send or
 * receive. Sends with the mutex held are steps of their own, since the
 * receiver may run before the mutex is left.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   WAITERS=n      how many, 3 unless told
 *   OTHER          the last of them has another context
 *   ROUNDS=n       how often each asks, with the same waiter, 1 unless told
 *   FOLLOW_FROM=n  the length of line from which one follows, 1 unless told
 *   CLOSE          somebody closes the semaphore, at any moment
 *   ROOM=n         of a token channel, 3 unless told
 *   UNFAIR         the head is woken to compete, arrivals may be faster
 *   MUTANT_...     a protocol broken on purpose: an error must be found
 */

#ifndef WAITERS
#define WAITERS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef FOLLOW_FROM
#define FOLLOW_FROM 1
#endif

#define NOBODY 255

/* tokensAtMost */
#ifndef ROOM
#define ROOM 3
#endif

#define GRANTED     1
#define CANCELLED   2
#define TIMED_OUT   3
#define CLOSED      6
#define WATCH_DONE  4   /* not final, sent with the mutex held */
#define COMPETE_NOW 5   /* not final, sent with the mutex held */

#ifdef OTHER
#define CONTEXT(id) ((id) == WAITERS - 1)
#else
#define CONTEXT(id) 0
#endif

bool ended[2];

/* The mutex and what it guards. */
byte mu = NOBODY;
byte free = 0;
byte line[WAITERS];     /* head first */
byte inLine = 0;
byte watcher = NOBODY;
byte newest = NOBODY;
byte followers = 0;
byte competitor = NOBODY;
bool starving = false;
bool shut = false;
bool follows[WAITERS];
bool promoted[WAITERS];
byte verdict[WAITERS];

chan token[WAITERS] = [ROOM] of { byte };

/* Not in the code, for the properties only. */
byte limited;            /* the waiter that has a wait limit, or NOBODY */
byte arrived = 0;
byte owed[WAITERS];     /* verdicts decided but not yet received */
byte coming = 1;        /* permits whose give has not begun */
byte held = 0;
byte inFlight = 0;
byte finished = 0;

#define FOLLOWER(w) (follows[w] && !promoted[w])

/* LOCK stands first in an atomic step, with the first thing done under the
 * mutex, and unlock last: nothing can happen between that anybody could tell
 * from its happening before the one or after the other. */
#define LOCK   mu == NOBODY -> mu = _pid
#define MINE   assert(mu == _pid)

/* unlock leaves the mutex, what it guards being in order. */
inline unlock() {
	MINE;
	at = 0;
	w = 0;
	do
	:: at < inLine ->
		if
		:: FOLLOWER(line[at]) ->
			/* somebody watches for it, and the right context */
			assert(watcher != NOBODY && CONTEXT(line[at]) == CONTEXT(watcher));
			w++
		:: else
		fi;
		at++
	:: else -> break
	od;
	assert(w == followers);
	w = 0;
	if
	:: watcher != NOBODY -> find(watcher); assert(at < inLine && !FOLLOWER(watcher))
	:: else
	fi;
	if
	:: newest != NOBODY -> find(newest); assert(at < inLine && FOLLOWER(newest))
	:: else
	fi;
	if
	:: competitor != NOBODY -> find(competitor); assert(at < inLine)
	:: else -> assert(inLine == 0 || free == 0)     /* no wake-up lost */
	fi;
	at = 0;
	mu = NOBODY
}

/* ---------------------------------------------------- the line, under mu */

/* find leaves in at where w stands, or inLine if it does not (not queued). */
inline find(w) {
	at = 0;
	do
	:: at < inLine && line[at] != w -> at++
	:: else -> break
	od
}

inline push(w) {
	MINE;
	line[inLine] = w;
	if
	:: watcher == NOBODY -> watcher = w
	:: watcher != NOBODY && CONTEXT(watcher) == CONTEXT(w) && inLine >= FOLLOW_FROM ->
		follows[w] = true;
		followers++;
		newest = w
	:: else
	fi;
	inLine++
}

/* tell sends a token that is not final. It must not block: mu is held. */
inline tell(w, v) {
	assert(nfull(token[w]));
	token[w] ! v
}

/* elect tells the newest follower to watch, or the last one in line. */
inline elect() {
	watcher = NOBODY;
	if
	:: followers > 0 ->
		if
		:: newest != NOBODY -> watcher = newest
		:: else ->
			at = inLine - 1;
			do
			:: !FOLLOWER(line[at]) -> at--
			:: else -> break
			od;
			watcher = line[at];
			at = 0
		fi;
		newest = NOBODY;
		followers--;
#ifndef MUTANT_NOT_MARKED
		promoted[watcher] = true;
#endif
#ifdef MUTANT_LEAD_AFTER_UNLOCK
		lead = watcher
#else
		tell(watcher, WATCH_DONE)
#endif
	:: else
	fi
}

inline remove(w) {
	MINE;
	find(w);
	assert(at < inLine);
	do
	:: at + 1 < inLine -> line[at] = line[at+1]; at++
	:: else -> break
	od;
	inLine--;
	line[inLine] = 0;
	at = 0;
	if
	:: newest == w -> newest = NOBODY
	:: else
	fi;
	if
	:: FOLLOWER(w) -> followers--
	:: !FOLLOWER(w) && watcher == w ->
#ifdef MUTANT_LEAVE_UNELECTED
		watcher = NOBODY
#else
		elect()
#endif
	:: else
	fi
}

inline pull(w) {
	remove(w);
	if
	:: competitor == w -> competitor = NOBODY
	:: else
	fi
}

inline decideOn(w, v) {
	assert(owed[w] == 0);           /* nobody gets two verdicts */
	verdict[w] = v;
	owed[w] = 1;
	out[outs] = w;
	outs++
}

/* disbandOne takes a follower out of line whose context has ended. */
inline disbandOne(w) {
#ifdef MUTANT_DISBAND_LEAVES_COMPETITOR
	remove(w);
#else
	pull(w);
#endif
	decideOn(w, CANCELLED)
}

inline grantHead() {
	free--;
	inFlight++;
	w = line[0];
	pull(w);
	decideOn(w, GRANTED);
	w = 0
}

/* ---------------------------------------------------------------- settle */

#ifdef UNFAIR
/* serveUnfair. Whether somebody is overdue is left to chance. The last option
 * is an arrival that takes the permit in the midst of it. */
inline settleAndUnlock() {
	do
	:: atomic { inLine == 0 -> starving = false; unlock(); break }
	:: atomic { inLine > 0 && starving && free > 0 ->
		grantHead();
		if
		:: starving = false
		:: inLine > 0
		fi }
	:: atomic { inLine > 0 && starving && free == 0 -> unlock(); break }
	:: atomic { inLine > 0 && !starving && competitor != NOBODY -> unlock(); break }
	:: d_step { inLine > 0 && !starving && competitor == NOBODY && free > 0 ->
		competitor = line[0];
		tell(competitor, COMPETE_NOW) };
	   atomic { unlock(); break }
	:: atomic { inLine > 0 && !starving && competitor == NOBODY && free == 0 ->
		if
		:: unlock(); break
		:: starving = true
		fi }
	od
}
#else
inline settleAndUnlock() {
	do
	:: atomic { inLine == 0 || free == 0 -> unlock(); break }
	:: d_step { inLine > 0 && free > 0 -> grantHead() }
	od
}
#endif

/* deliver: one verdict per step, after the mutex was left. */
inline deliver() {
#ifdef MUTANT_LEAD_AFTER_UNLOCK
	if
	:: d_step { lead != NOBODY -> tell(lead, WATCH_DONE); lead = NOBODY }
	:: lead == NOBODY
	fi;
#endif
	do
	:: outs == 0 -> break
	:: d_step {
		outs > 0 ->
		tell(out[0], verdict[out[0]]);
		at = 0;
		do
		:: at + 1 < outs -> out[at] = out[at+1]; at++
		:: else -> break
		od;
		outs--;
		out[outs] = 0;
		at = 0
	   }
	od
}

/* recycle: whoever may be reused is in no line and told nothing any more. */
inline recycle(w) {
	assert(empty(token[w]) && owed[w] == 0);
	assert(watcher != w && newest != w && competitor != w);
	follows[w] = false;
	promoted[w] = false;
	verdict[w] = 0
}

inline drainTokens(w) {
#ifdef MUTANT_NOT_DRAINED
	v = 0
#else
	do
	:: atomic { token[w] ? v; v = 0 }
	:: atomic { empty(token[w]) -> v = 0; break }
	od
#endif
}

#define FINAL(v) ((v) != WATCH_DONE && (v) != COMPETE_NOW)

#ifdef MUTANT_LEAD_AFTER_UNLOCK
#define LOCALS byte at, w, outs, out[WAITERS], lead = NOBODY
#else
#define LOCALS byte at, w, outs, out[WAITERS]
#endif

/* --------------------------------------------------------------- waiters */

#ifdef OTHER
#define OTHER_CONTEXT(id) ((id) == WAITERS - 1)
#else
#define OTHER_CONTEXT(id) false
#endif

inline arrives(id) {
	if
	:: arrived == id -> arrived++
	:: else
	fi
}

/* The word decides who may take at once, see handoff.pml. */
#ifdef UNFAIR
#define MAY_TAKE (free > 0 && !starving && !shut)
#else
#define MAY_TAKE (free > 0 && inLine == 0 && !shut)
#endif

proctype waiter(byte id) {
	byte rounds = ROUNDS;
	byte v;
	byte why;
	bool watches;
	LOCALS;

	/* Waiters are numbered as they arrive: they are alike, so other orders
	 * would only repeat what was searched. */
	arrived == id || OTHER_CONTEXT(id);
again:
	/* enter. An ended context may have been looked at just before it ended. */
	atomic {
		if
		:: ended[CONTEXT(id)] -> arrives(id); goto returned
		:: MAY_TAKE -> arrives(id); free--; held++; goto holding
		:: LOCK;
		   arrives(id);
		   if
		   :: shut -> unlock(); goto returned
		   :: MAY_TAKE -> free--; held++; unlock(); goto holding
		   :: else -> push(id); unlock()
		   fi
		fi;
		watches = !follows[id]
	};

	/* park */
parked:
	do
	:: atomic {
		token[id] ? v;
		if
#ifdef MUTANT_DEAF
		:: v == WATCH_DONE -> v = 0
#else
		:: v == WATCH_DONE -> v = 0; watches = true
#endif
		:: v == COMPETE_NOW -> v = 0; goto compete
		:: FINAL(v) ->
			owed[id]--;
			recycle(id);
			if
			:: v == GRANTED ->
				inFlight--;
				held++;
				if
				:: ended[CONTEXT(id)] -> goto giveBack
				:: else -> goto holding
				fi
			:: else ->
				assert(v == CLOSED || v == CANCELLED && ended[CONTEXT(id)]);
				goto returned
			fi
		fi
	   }
	:: atomic { watches && ended[CONTEXT(id)] -> why = CANCELLED; break }
	:: atomic { limited == id -> why = TIMED_OUT; break }
	od;

	/* leave */
	atomic {
		LOCK;
		find(id);
		if
		:: at == inLine -> at = 0; unlock(); goto outrun
		:: else -> at = 0
		fi;
		/* disband */
		if
		:: why == CANCELLED && watcher == id ->
			do
			:: at < inLine && FOLLOWER(line[at]) ->
				w = line[at];
				disbandOne(w);
				at = 0
			:: at < inLine && !FOLLOWER(line[at]) -> at++
			:: at == inLine -> break
			od;
			at = 0;
			w = 0
		:: else
		fi;
		pull(id)
	};
	settleAndUnlock();
	deliver();
	drainTokens(id);
	atomic { recycle(id); goto returned };

outrun:
	/* finalToken: a verdict was faster and is certain to come. */
	do
	:: atomic {
		token[id] ? v;
		if
		:: !FINAL(v) -> v = 0
		:: FINAL(v) ->
			owed[id]--;
			recycle(id);
			if
			:: v != GRANTED -> goto returned
			:: v == GRANTED && why == TIMED_OUT -> inFlight--; held++; goto holding
			:: else -> inFlight--; held++; goto giveBack
			fi
		fi
	   }
	od;

compete:
	atomic {
		LOCK;
		find(id);
		if
		:: at == inLine -> at = 0; unlock(); goto parked
		:: else -> at = 0; competitor = NOBODY
		fi;
		if
		:: free > 0 -> free--; held++; pull(id); v = GRANTED
		:: else
		fi
	};
	settleAndUnlock();
	deliver();
	if
	:: v != GRANTED -> goto parked
	:: v == GRANTED
	fi;
	drainTokens(id);
	atomic {
		recycle(id);
		if
		:: ended[CONTEXT(id)] -> goto giveBack
		:: else -> goto holding
		fi
	};

holding:
	if
	:: goto returned        /* keeps the permit for good */
	:: skip
	fi;
giveBack:
	atomic { LOCK; held--; free++ };
	settleAndUnlock();
	deliver();

returned:
	atomic {
		v = 0; why = 0; watches = false;
		rounds--;
		if
		:: rounds > 0 -> goto again
		:: else -> finished++
		fi
	}
}

/* The holder of the permit all wait for. */
proctype giver() {
	LOCALS;
	atomic { LOCK; coming--; free++ };
	settleAndUnlock();
	deliver();
	finished++
}

/* turnAway: everybody in line is refused, the electing among them included. */
proctype closer() {
	LOCALS;
	atomic { LOCK; shut = true };
	do
	:: d_step { inLine > 0 -> w = line[0]; pull(w); decideOn(w, CLOSED); w = 0 }
	:: inLine == 0 -> break
	od;
	settleAndUnlock();
	deliver();
	finished++
}

/* The contexts end at any moment, but they do. */
proctype ender(byte c) {
	atomic { ended[c] = true; finished++ }
}

/* ------------------------------------------------------------ properties */

#define CONSERVED (coming + free + held + inFlight == 1)

/* check is stuck in its first step for as long as all is well. */
active proctype check() {
end:
	atomic { !CONSERVED -> assert(CONSERVED) }
}

init {
	byte i, processes;
	atomic {
		if
		:: limited = NOBODY
		:: limited = 0
		:: limited = 1
#if WAITERS > 2
		:: limited = 2
#endif
#if WAITERS > 3
		:: limited = 3
#endif
		fi;
		do
		:: i < WAITERS -> run waiter(i); i++
		:: else -> break
		od;
		run giver();
		run ender(0);
		processes = WAITERS + 2;
#ifdef OTHER
		run ender(1);
		processes++;
#endif
#ifdef CLOSE
		run closer();
		processes++;
#endif
		i = 0
	}
	/* Everybody returns: not to get past this is an invalid end state. */
	atomic {
		finished == processes;
		assert(inLine == 0 && watcher == NOBODY && newest == NOBODY);
		assert(followers == 0 && competitor == NOBODY && !starving);
		assert(inFlight == 0 && mu == NOBODY);
		do
		:: i < WAITERS -> assert(empty(token[i]) && owed[i] == 0); i++
		:: else -> break
		od
	}
}
