/*
 * The word, the line and the hand-off of a core: word.go, core.go, settle.go,
 * and park.go without the sharing of contexts, which is in watcher.pml.
 *
 * Acquirers of weight 1 and 2 share two permits. Each may give up at any
 * moment, because its context ends or because its time is up, or never. A
 * resizer shrinks the capacity, to 1 or to 0 (paused), and grows it back.
 *
 * One step here is one atomic operation of the code: a load, a compare-and-
 * swap, an add, taking or leaving the mutex, a send or a receive. What the
 * mutex guards is seen by its holder alone, so work on it is done in the step
 * of an atomic operation next to it; the model asserts that only the holder
 * does so. Everything else interleaves freely.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   ACQUIRERS=n   how many acquire, 3 unless told; weights alternate 1, 2
 *   ROUNDS=n      how often each does, 1 unless told
 *   RESIZE        with the resizer
 *   UNFAIR        arrivals may take past the line, the head is woken to compete;
 *                 whether it has waited too long is left to chance
 *   LIFO          arrivals may take past the line, the newest is its head
 *   MUTANT_...    a protocol broken on purpose: an error must be found
 */

#ifndef ACQUIRERS
#define ACQUIRERS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

#define CAPACITY 2
#define NOBODY   255
#define RESIZER  ACQUIRERS      /* its number among the processes */

/* The word: free permits below, two flags above. */
#define WAITING  32
#define SLOW     16
#define FREE     (word & 15)

/* Verdicts, of which CANCELLED, TIMED_OUT and NEVER also say how a wait may
 * be cut short. */
#define GRANTED     1
#define TOO_LARGE   2
#define CANCELLED   3
#define TIMED_OUT   4
#define NEVER       5
#define COMPETE_NOW 6   /* not final, sent with the mutex held */

byte word = CAPACITY;

/* The mutex and what it guards. */
byte mu = NOBODY;
byte capacity = CAPACITY;
byte debt = 0;
byte line[ACQUIRERS];   /* waiters, head first */
byte inLine = 0;
byte verdict[ACQUIRERS];
#ifdef UNFAIR
byte competitor = NOBODY;
bool starving = false;
#else
#define competitor NOBODY
#define starving   false
#endif

/* A waiter belongs to the acquirer of its number. There is room for just the
 * tokens there can be, so a waiter that is woken twice is found out. */
#ifdef UNFAIR
chan token[ACQUIRERS] = [2] of { byte };
#else
chan token[ACQUIRERS] = [1] of { byte };
#endif

/* Not in the code, for the properties only. */
byte held = 0;          /* permits callers have */
byte inFlight = 0;      /* granted under the mutex, not yet received */
byte owed[ACQUIRERS];   /* verdicts decided but not yet received */
byte due = 0;           /* gives that saw a flag and have not settled yet */
bool shrunk = false;
byte finished = 0;

#define WEIGHT(id)  (1 + ((id) & 1))
#define HEAD        WEIGHT(line[0])
#define OVERSIZE(n) (capacity > 0 && (n) > capacity)

#if defined(UNFAIR) || defined(LIFO)
#define BARGES
#define MUST_QUEUE  (inLine > 0 && starving)
#else
#define MUST_QUEUE  (inLine > 0)
#endif
#define IN_TURN     (debt == 0 && !MUST_QUEUE)

#define LOCK   mu == NOBODY -> mu = _pid        /* in an atomic step */
#define UNLOCK assert(mu == _pid); mu = NOBODY
#define MINE   assert(mu == _pid)

/* ---------------------------------------------------- the line, under mu */

/* find leaves in at where w stands, or inLine if it does not: the code knows by
 * the waiter's verdict. */
inline find(w) {
	at = 0;
	do
	:: at < inLine && line[at] != w -> at++
	:: else -> break
	od
}

inline push(w) {
	MINE;
	at = inLine;
#ifdef LIFO
	do
	:: at > 0 -> line[at] = line[at-1]; at--
	:: else -> break
	od;
#endif
	line[at] = w;
	inLine++;
	at = 0
}

inline pull(w) {
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
#ifdef UNFAIR
	if
	:: competitor == w -> competitor = NOBODY
	:: else
	fi
#endif
}

/* dismiss: out of line with a final verdict, to be told after unlocking. */
inline dismiss(w, v) {
	pull(w);
	verdict[w] = v;
	owed[w]++;
	out[outs] = w;
	outs++;
	if
	:: v == GRANTED -> inFlight = inFlight + WEIGHT(w)
	:: else
	fi
}

/* -------------------------------------------------------------- the word */

/* CAS leaves in done whether it succeeded. The load was a step before. */
#define CAS(to) \
	if \
	:: word == old -> word = to; done = true \
	:: else -> done = false \
	fi

/* payDebt: takeUpTo(debt). */
inline payDebt() {
	do
	:: debt == 0 -> break
	:: debt > 0 && FREE == 0 -> break                               /* load */
	:: atomic { debt > 0 && FREE > 0 -> MINE; old = word };         /* load */
	   atomic {
		got = ((old & 15) < debt -> (old & 15) : debt);
		CAS(old - got);
		old = 0;
		if
		:: done -> done = false; debt = debt - got; got = 0; break
		:: else -> got = 0
		fi
	   }
	od
}

#define FLAGS ((inLine > 0 && competitor == NOBODY -> WAITING : 0) | \
               (debt > 0 || starving -> SLOW : 0))
#define DOWN  ((WAITING | SLOW) & ~FLAGS)

inline raiseFlags() {
	if
	:: (word & FLAGS) == FLAGS                                      /* load */
	:: else -> d_step { MINE; word = word | FLAGS }                 /* or */
	fi
}

inline lowerFlags() {
	if
	:: (word & DOWN) == 0                                           /* load */
	:: else -> d_step { MINE; word = word & ~DOWN }                 /* and */
	fi
}

#ifdef MUTANT_SERVE_IN_DEBT
#define SERVES true
#else
#define SERVES (debt == 0)
#endif

#ifdef UNFAIR
/* serveUnfair. A head that is overdue is served by hand. */
inline serve() {
	do
	:: !SERVES -> break
	:: atomic { SERVES && inLine == 0 -> starving = false; break }
	:: SERVES && inLine > 0 && starving && FREE < HEAD -> break     /* load */
	:: atomic { SERVES && inLine > 0 && starving && FREE >= HEAD ->
		MINE; old = word };                                     /* load */
	   atomic {
		CAS(old - HEAD);
		old = 0;
		if
		:: done ->
			done = false;
			assert(debt == 0);      /* not before the debt is paid */
			w = line[0];
			dismiss(w, GRANTED);
			w = 0;
			if
			:: starving = false
			:: inLine > 0           /* the next is overdue too */
			fi
		:: else
		fi
	   }
	:: SERVES && inLine > 0 && !starving && competitor != NOBODY -> break
	:: d_step { SERVES && inLine > 0 && !starving && competitor == NOBODY && FREE >= HEAD ->
		MINE;
		competitor = line[0];
		assert(nfull(token[competitor]));
		token[competitor] ! COMPETE_NOW };                      /* load, send */
	   break
	:: SERVES && inLine > 0 && !starving && competitor == NOBODY && FREE < HEAD ->
		if
		:: break
		:: d_step { starving = true; word = word | SLOW }       /* or */
		fi
	od
}
#else
/* serve: takeFlagged for the head, until one does not fit. */
inline serve() {
	do
	:: atomic { !SERVES || next >= inLine -> next = 0; break }
	:: SERVES && next < inLine && FREE < WEIGHT(line[next]) ->      /* load */
#ifdef MUTANT_SERVE_PAST_HEAD
		next++                  /* to somebody light enough */
#else
		break
#endif
	:: atomic { SERVES && next < inLine && FREE >= WEIGHT(line[next]) ->
		MINE; old = word };                                     /* load */
	   d_step {
		CAS(old - WEIGHT(line[next]));
		old = 0;
		if
		:: done ->
			done = false;
			assert(next == 0);      /* strictly in order */
			assert(debt == 0);      /* not before the debt is paid */
			w = line[next];
			dismiss(w, GRANTED);
			w = 0
		:: else
		fi
	   }
	od
}
#endif

inline settle() {
#ifdef MUTANT_RAISE_LATE
	payDebt();
	raiseFlags();
#else
	raiseFlags();
	payDebt();
#endif
	serve();
	lowerFlags()
}

/* deliver sends one token. */
inline deliver() {
	assert(nfull(token[out[0]]));   /* a full channel would block */
	token[out[0]] ! verdict[out[0]];
	at = 0;
	do
	:: at + 1 < outs -> out[at] = out[at+1]; at++
	:: else -> break
	od;
	outs--;
	out[outs] = 0;
	at = 0
}

/* ------------------------------------------------------- a waiter's end */

/* recycle: a waiter that may be reused is told nothing any more. */
inline recycle(w) {
	assert(owed[w] == 0);
	assert(empty(token[w]));
	verdict[w] = 0
}

/* received: v is what the owner of w got from its channel. */
inline received(w) {
	if
	:: v == COMPETE_NOW
	:: v != COMPETE_NOW ->
		owed[w]--;
		if
		:: v == GRANTED -> inFlight = inFlight - n; held = held + n; has = n
		:: else
		fi;
		recycle(w)
	fi
}

/* -------------------------------------------------------------- processes */

/* Who comes now need not raise the flag: it is up, or a competitor on its way
 * will settle. */
#define STAND ((word & WAITING) || competitor != NOBODY)

/* Every path that settles does so at settles, and goes on as back says. */
#define GAVE     1
#define LEFT     2
#define COMPETED 3
#define SHRANK   4
#define GREW     5

proctype process(byte id) {
	byte n = WEIGHT(id);
	byte has = 0;           /* permits the caller would call its own */
	byte how = 0;           /* how this wait may end early */
	byte rounds = ROUNDS;
	byte v, back;
	byte old, got, at, next, w, outs, out[ACQUIRERS];
	bool done, flagged;

	atomic {
		if
		:: id == RESIZER -> goto resizes
		:: else
		fi
	};

acquires:
	/* takeAgain: no lock while no flag is up. */
	do
	:: word >= SLOW || FREE < n -> break                            /* load */
	:: atomic { word < SLOW && FREE >= n -> old = word };           /* load */
	   atomic {
#ifdef MUTANT_TAKE_WITHOUT_CAS
		word = old - n; done = true;
#else
		CAS(old - n);
#endif
		old = 0;
		if
		:: done ->
			done = false;
#ifndef UNFAIR
			assert(inLine == 0);    /* nobody is overtaken */
#endif
			held = held + n;
			has = n;
			goto holds
		:: else
		fi
	   }
	od;
#ifdef BARGES
	/* barge: past the line, unless somebody in it starves. */
	do
	:: (word & SLOW) || FREE < n -> break                           /* load */
	:: atomic { !(word & SLOW) && FREE >= n -> old = word };        /* load */
	   atomic {
		CAS(old - n);
		old = 0;
		if
		:: done -> done = false; held = held + n; has = n; goto holds
		:: else
		fi
	   }
	od;
#endif

	/* enter and admit */
	atomic {
		LOCK;
		if
		:: OVERSIZE(n) -> UNLOCK; goto returns
		:: else
		fi
	};
	payDebt();
	do
	:: atomic { IN_TURN && FREE >= n -> MINE; old = word };         /* load */
	   d_step {
		CAS(old - n);
		old = 0;
		if
		:: done -> held = held + n; has = n
		:: else
		fi
	   };
	   if
	   :: atomic { done -> done = false; UNLOCK; goto holds }
	   :: !done
	   fi
	:: atomic { !(IN_TURN && FREE >= n) -> UNLOCK; goto returns }   /* load */
	   /* full: it was a try. Chosen here, where tries part from waits. */
	:: !(IN_TURN && FREE >= n) && STAND -> break                    /* load */
	:: atomic { !(IN_TURN && FREE >= n) && !STAND -> MINE; old = word };
	   atomic {
#ifdef MUTANT_RAISE_BLINDLY
		word = word | WAITING; done = true;
#else
		CAS(old | WAITING);
#endif
		old = 0;
		if
		:: done -> done = false; break
		:: else
		fi
	   }
	od;
	atomic { push(id); UNLOCK };

	/* park. How the wait may be cut short is chosen here, where it starts to
	 * matter; NEVER is what finds a waiter that nobody wakes. */
	if
	:: how = NEVER
	:: how = CANCELLED
	:: how = TIMED_OUT
	fi;
parked:
	if
	:: atomic { token[id] ? v; received(id) };
	   if
	   :: v == COMPETE_NOW -> goto competes
	   :: v == GRANTED && how == CANCELLED -> goto gives    /* ended just now */
	   :: v == GRANTED -> goto holds
	   :: v == TOO_LARGE -> goto returns
	   fi
	:: how != NEVER
	fi;

	/* leave */
	atomic {
		LOCK;
		find(id);
		if
		:: at == inLine -> at = 0; UNLOCK; goto outrun
		:: else -> at = 0; pull(id); back = LEFT; goto settles
		fi
	};

outrun:
	/* finalToken: a verdict was faster and is certain to come. */
#ifdef MUTANT_LEAVE_AT_ONCE
	atomic { recycle(id) };
#else
	atomic { token[id] ? v; received(id) };
#endif
	if
	:: v == COMPETE_NOW -> goto outrun
	:: v == GRANTED && how == TIMED_OUT -> goto holds
	:: v == GRANTED && how == CANCELLED ->
#ifdef MUTANT_KEEP_RACED_GRANT
		goto returns
#else
		goto gives
#endif
	:: v != GRANTED && v != COMPETE_NOW -> goto returns
	fi;

competes:
#ifdef UNFAIR
	atomic {
		LOCK;
		v = 0;
		find(id);
		if
		:: at == inLine -> at = 0; UNLOCK; goto parked
		:: else -> at = 0
		fi;
#ifndef MUTANT_STAYS_COMPETITOR
		competitor = NOBODY;
#endif
		back = COMPETED
	};
	do
	:: debt > 0 || FREE < n -> goto settles                         /* load */
	:: atomic { debt == 0 && FREE >= n -> MINE; old = word };       /* load */
	   atomic {
		CAS(old - n);
		old = 0;
		if
		:: done -> done = false; held = held + n; has = n; pull(id); goto settles
		:: else
		fi
	   }
	od;
#endif

holds:
	assert(has == n);
gives:
	/* give: add, then look at the flags in the value the add returned. */
#ifdef MUTANT_LOOK_THEN_ADD
	flagged = (word >= SLOW);
	atomic {
		word = word + n; held = held - n; has = 0;
#else
	atomic {
		word = word + n; held = held - n; has = 0;
		flagged = (word >= SLOW);
#endif
		if
		:: flagged -> flagged = false; due++
		:: else -> goto returns
		fi
	};
	atomic { LOCK; back = GAVE; goto settles };

resizes:
	/* setCapacity, shrinking to 0 or 1 */
	atomic {
		LOCK;
		if
		:: w = 0
		:: w = 1
		fi;
		debt = debt + capacity - w;
		capacity = w;
		shrunk = true;
		back = SHRANK
	};
	payDebt();
	/* resettle: who does not fit any more is refused; 0 refuses nobody. */
	atomic {
		MINE;
		do
		:: next < inLine && OVERSIZE(WEIGHT(line[next])) ->
			w = line[next];
			dismiss(w, TOO_LARGE)
		:: next < inLine && !OVERSIZE(WEIGHT(line[next])) -> next++
		:: next == inLine -> break
		od;
		next = 0;
		w = 0;
		goto settles
	};
grows:
	/* setCapacity, growing: what is not needed to pay debt is added. */
	atomic {
		LOCK;
		got = CAPACITY - capacity;
		capacity = CAPACITY;
		w = (debt < got -> debt : got);
		debt = debt - w;
		word = word + got - w;
		got = 0;
		w = 0;
		back = GREW
	};

settles:
#ifdef MUTANT_LEAVE_UNSETTLED
	if
	:: back == LEFT -> goto unlocks
	:: else
	fi;
#endif
#ifdef MUTANT_COMPETE_UNSETTLED
	if
	:: back == COMPETED -> goto unlocks
	:: else
	fi;
#endif
	settle();
unlocks:
	atomic {
		UNLOCK;
		if
		:: back == GAVE -> due--
		:: else
		fi
	};
	/* One token per step, now that the mutex was left. */
	do
	:: d_step { outs > 0 -> deliver() }
	:: atomic { outs == 0 ->
		if
		:: back == GAVE -> back = 0; goto returns
		:: back == SHRANK -> back = 0; goto grows
		:: back == GREW -> back = 0; goto returns
		:: back == COMPETED && has == 0 -> back = 0; goto parked
		:: back == LEFT || back == COMPETED && has > 0 -> break
		fi }
	od;
	/* Out of line by itself and not by a verdict. What else could be in its
	 * channel was sent under the mutex: drainTokens. */
	do
	:: token[id] ? v
	:: atomic { empty(token[id]) ->
		v = 0;
		recycle(id);
		if
		:: back == LEFT -> back = 0; goto returns
		:: back == COMPETED && how == CANCELLED -> back = 0; goto gives
		:: back == COMPETED -> back = 0; goto holds
		fi }
	od;

returns:
	atomic {
		assert(has == 0);       /* above all if cancelled or refused */
		v = 0;
		how = 0;
		rounds--;
		if
		:: rounds > 0 && id != RESIZER -> goto acquires
		:: else -> finished++
		fi
	}
}

/* ------------------------------------------------------------ properties */

#define CONSERVED (FREE + held + inFlight == capacity + debt)
#define IN_BOUNDS (shrunk || held + inFlight <= CAPACITY)
/* Somebody in line is seen by every take and every give. */
#ifdef UNFAIR
#define FLAGGED   (mu != NOBODY || inLine == 0 || STAND)
#else
#define FLAGGED   (inLine == 0 || STAND)
#endif
/* The invariants of core, whenever the mutex is free and no give that saw a
 * flag is still on its way to it. */
#define AT_REST   (mu == NOBODY && due == 0)
#define SETTLED   (debt > 0 -> ((word & SLOW) && FREE == 0) \
                   : (inLine == 0 || competitor != NOBODY || FREE < HEAD))

#ifdef RESIZE
#define PROCESSES (ACQUIRERS + 1)
#else
#define PROCESSES ACQUIRERS
#endif

/* check is stuck in its first step for as long as all is well. */
active proctype check() {
end:
	atomic {
		!CONSERVED || !IN_BOUNDS || !FLAGGED || (AT_REST && !SETTLED) ->
			assert(CONSERVED);      /* no permit lost, none minted */
			assert(IN_BOUNDS);      /* never more out than there are */
			assert(FLAGGED);        /* a release cannot miss a waiter */
			assert(SETTLED)         /* no wake-up lost */
	}
}

init {
	byte i;
	atomic {
		do
		:: i < PROCESSES -> run process(i); i++
		:: else -> break
		od;
		i = 0
	}
	/* Everybody returns: not to get past this is an invalid end state. */
	atomic {
		finished == PROCESSES;
		assert(held == 0 && inFlight == 0 && debt == 0 && inLine == 0);
		assert(mu == NOBODY && due == 0 && competitor == NOBODY && !starving);
		assert(word == CAPACITY)        /* all back, both flags down */
	}
}
