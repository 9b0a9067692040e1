/*
 * The word, the queue and the hand-off of a core: word.go, core.go, settle.go,
 * and park.go without shared contexts, which are in watcher.pml.
 *
 * Acquirers of weight 1 and 2 share two permits. Each may stop waiting at any
 * moment, because its context ends or its time limit passes, or never. A
 * resizer shrinks the capacity, to 1 or to 0 (paused), and grows it again.
 *
 * One step of the model is one atomic operation of the code: a load, a
 * compare-and-swap, an add, locking or unlocking the mutex, a send or a receive.
 * Only the holder of the mutex sees what it guards. So work on that is part of
 * the step next to it, and the model asserts that only the holder does such
 * work. Everything else interleaves freely.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   ACQUIRERS=n   default 3; weights alternate 1, 2
 *   ROUNDS=n      acquires of each acquirer, default 1
 *   RESIZE        with the resizer
 *   UNFAIR        arrivals may overtake the queue, and the head is woken to compete;
 *                 whether it has waited too long is nondeterministic
 *   LIFO          arrivals may overtake the queue, and the newest is its head
 *   MUTANT_...    a protocol broken on purpose: an error must be found
 */

#ifndef ACQUIRERS
#define ACQUIRERS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

#define CAPACITY 2
#define NONE     255
#define RESIZER  ACQUIRERS      /* its number among the processes */

/* The word: free permits in the low bits, two flags above. */
#define WAITING  32
#define SLOW     16
#define FREE     (word & 15)

/* Statuses. CANCELLED, TIMED_OUT and NEVER also select how a wait may end early. */
#define GRANTED     1
#define TOO_LARGE   2
#define CANCELLED   3
#define TIMED_OUT   4
#define NEVER       5
#define COMPETE_NOW 6   /* not final, sent with the mutex held */

byte word = CAPACITY;

/* The mutex and what it guards. */
byte mu = NONE;
byte capacity = CAPACITY;
byte debt = 0;
byte queue[ACQUIRERS];  /* waiters, head first */
byte queued = 0;
byte status[ACQUIRERS];
#ifdef UNFAIR
byte competitor = NONE;
bool starving = false;
#else
#define competitor NONE
#define starving   false
#endif

/* A waiter belongs to the acquirer of its number. Its channel has room for exactly
 * the possible tokens, so that a duplicate wake-up is an error. */
#ifdef UNFAIR
chan token[ACQUIRERS] = [2] of { byte };
#else
chan token[ACQUIRERS] = [1] of { byte };
#endif

/* Not in the code, only for the properties. */
byte held = 0;          /* permits of callers */
byte inFlight = 0;      /* granted under the mutex, not yet received */
byte owed[ACQUIRERS];   /* statuses decided but not yet received */
byte due = 0;           /* gives that saw a flag and have not settled yet */
bool shrunk = false;
byte finished = 0;

#define WEIGHT(id)  (1 + ((id) & 1))
#define HEAD        WEIGHT(queue[0])
#define OVERSIZE(n) (capacity > 0 && (n) > capacity)

#if defined(UNFAIR) || defined(LIFO)
#define BARGES
#define MUST_QUEUE  (queued > 0 && starving)
#else
#define MUST_QUEUE  (queued > 0)
#endif
#define IN_TURN     (debt == 0 && !MUST_QUEUE)

#define LOCK   mu == NONE -> mu = _pid        /* in an atomic step */
#define UNLOCK assert(mu == _pid); mu = NONE
#define MINE   assert(mu == _pid)

/* --------------------------------------------------- the queue, under mu */

/* find sets at to the place of w, or to queued if w is not queued. The code uses
 * the status of the waiter instead. */
inline find(w) {
	at = 0;
	do
	:: at < queued && queue[at] != w -> at++
	:: else -> break
	od
}

inline enqueue(w) {
	MINE;
	at = queued;
#ifdef LIFO
	do
	:: at > 0 -> queue[at] = queue[at-1]; at--
	:: else -> break
	od;
#endif
	queue[at] = w;
	queued++;
	at = 0
}

inline dequeue(w) {
	MINE;
	find(w);
	assert(at < queued);
	do
	:: at + 1 < queued -> queue[at] = queue[at+1]; at++
	:: else -> break
	od;
	queued--;
	queue[queued] = 0;
	at = 0;
#ifdef UNFAIR
	if
	:: competitor == w -> competitor = NONE
	:: else
	fi
#endif
}

/* finish: out of the queue with a final status, to be sent after unlocking. */
inline finish(w, v) {
	dequeue(w);
	status[w] = v;
	owed[w]++;
	out[outs] = w;
	outs++;
	if
	:: v == GRANTED -> inFlight = inFlight + WEIGHT(w)
	:: else
	fi
}

/* -------------------------------------------------------------- the word */

/* CAS sets done to whether it succeeded. The load was an earlier step. */
#define CAS(to) \
	if \
	:: word == old -> word = to; done = true \
	:: else -> done = false \
	fi

/* payDebt: takeUpToLocked(debt). */
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

#define FLAGS ((queued > 0 && competitor == NONE -> WAITING : 0) | \
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
/* serveUnfairLocked. A head that is overdue is granted directly. */
inline serve() {
	do
	:: !SERVES -> break
	:: atomic { SERVES && queued == 0 -> starving = false; break }
	:: SERVES && queued > 0 && starving && FREE < HEAD -> break     /* load */
	:: atomic { SERVES && queued > 0 && starving && FREE >= HEAD ->
		MINE; old = word };                                     /* load */
	   atomic {
		CAS(old - HEAD);
		old = 0;
		if
		:: done ->
			done = false;
			assert(debt == 0);      /* not before the debt is paid */
			w = queue[0];
			finish(w, GRANTED);
			w = 0;
			if
			:: starving = false
			:: queued > 0           /* the next is overdue too */
			fi
		:: else
		fi
	   }
	:: SERVES && queued > 0 && !starving && competitor != NONE -> break
	:: d_step { SERVES && queued > 0 && !starving && competitor == NONE && FREE >= HEAD ->
		MINE;
		competitor = queue[0];
		assert(nfull(token[competitor]));
		token[competitor] ! COMPETE_NOW };                      /* load, send */
	   break
	:: SERVES && queued > 0 && !starving && competitor == NONE && FREE < HEAD ->
		if
		:: break
		:: d_step { starving = true; word = word | SLOW }       /* or */
		fi
	od
}
#else
/* serve: takeFlaggedLocked for the head, until one does not fit. */
inline serve() {
	do
	:: atomic { !SERVES || next >= queued -> next = 0; break }
	:: SERVES && next < queued && FREE < WEIGHT(queue[next]) ->      /* load */
#ifdef MUTANT_SERVE_PAST_HEAD
		next++                  /* to a lighter waiter */
#else
		break
#endif
	:: atomic { SERVES && next < queued && FREE >= WEIGHT(queue[next]) ->
		MINE; old = word };                                     /* load */
	   d_step {
		CAS(old - WEIGHT(queue[next]));
		old = 0;
		if
		:: done ->
			done = false;
			assert(next == 0);      /* strictly in order */
			assert(debt == 0);      /* not before the debt is paid */
			w = queue[next];
			finish(w, GRANTED);
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
	token[out[0]] ! status[out[0]];
	at = 0;
	do
	:: at + 1 < outs -> out[at] = out[at+1]; at++
	:: else -> break
	od;
	outs--;
	out[outs] = 0;
	at = 0
}

/* ---------------------------------------------------- the end of a waiter */

/* recycle: a waiter that may be reused must not receive any more tokens. */
inline recycle(w) {
	assert(owed[w] == 0);
	assert(empty(token[w]));
	status[w] = 0
}

/* received: v is what the owner of w received from its channel. */
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

/* An arrival need not raise the flag: it is up, or a competitor on its way
 * will settle. */
#define QUEUE_SEEN ((word & WAITING) || competitor != NONE)

/* Every path that settles does so at settles, and continues as back selects. */
#define GAVE     1
#define LEFT     2
#define COMPETED 3
#define SHRANK   4
#define GREW     5

proctype process(byte id) {
	byte n = WEIGHT(id);
	byte has = 0;           /* permits that the caller holds */
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
			assert(queued == 0);    /* no waiter is overtaken */
#endif
			held = held + n;
			has = n;
			goto holds
		:: else
		fi
	   }
	od;
#ifdef BARGES
	/* barge: past the queue, unless a waiter in it starves. */
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

	/* enter and admitLocked */
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
	   /* full: it was a try. Chosen here, where tries and waits differ. */
	:: !(IN_TURN && FREE >= n) && QUEUE_SEEN -> break               /* load */
	:: atomic { !(IN_TURN && FREE >= n) && !QUEUE_SEEN -> MINE; old = word };
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
	atomic { enqueue(id); UNLOCK };

	/* park. How the wait may end early is chosen here, where it starts to
	 * matter; NEVER finds a waiter that is never woken. */
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
	   :: v == GRANTED && how == CANCELLED -> goto gives    /* cancelled just now */
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
		:: at == queued -> at = 0; UNLOCK; goto outrun
		:: else -> at = 0; dequeue(id); back = LEFT; goto settles
		fi
	};

outrun:
	/* finalToken: a status was faster and is certain to arrive. */
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
		:: at == queued -> at = 0; UNLOCK; goto parked
		:: else -> at = 0
		fi;
#ifndef MUTANT_STAYS_COMPETITOR
		competitor = NONE;
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
		:: done -> done = false; held = held + n; has = n; dequeue(id); goto settles
		:: else
		fi
	   }
	od;
#endif

holds:
	assert(has == n);
gives:
	/* give: add, then check the flags in the value that the add returned. */
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
	/* setCapacityLocked, shrinking to 0 or 1 */
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
	/* resettleLocked: waiters that do not fit any more are rejected; 0 rejects none. */
	atomic {
		MINE;
		do
		:: next < queued && OVERSIZE(WEIGHT(queue[next])) ->
			w = queue[next];
			finish(w, TOO_LARGE)
		:: next < queued && !OVERSIZE(WEIGHT(queue[next])) -> next++
		:: next == queued -> break
		od;
		next = 0;
		w = 0;
		goto settles
	};
grows:
	/* setCapacityLocked, growing: what is not needed to pay debt is added. */
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
	/* One token per step, after the mutex was unlocked. */
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
	/* Out of the queue by itself, not by a status. What else could be in its
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
		assert(has == 0);       /* above all if cancelled or rejected */
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
/* Every take and every give sees a queued waiter. */
#ifdef UNFAIR
#define FLAGGED   (mu != NONE || queued == 0 || QUEUE_SEEN)
#else
#define FLAGGED   (queued == 0 || QUEUE_SEEN)
#endif
/* The invariants of core, whenever the mutex is free and no give that saw a
 * flag is still on its way to it. */
#define AT_REST   (mu == NONE && due == 0)
#define SETTLED   (debt > 0 -> ((word & SLOW) && FREE == 0) \
                   : (queued == 0 || competitor != NONE || FREE < HEAD))

#ifdef RESIZE
#define PROCESSES (ACQUIRERS + 1)
#else
#define PROCESSES ACQUIRERS
#endif

/* check stays at its first step while all invariants hold. */
active proctype check() {
end:
	atomic {
		!CONSERVED || !IN_BOUNDS || !FLAGGED || (AT_REST && !SETTLED) ->
			assert(CONSERVED);      /* no permit lost, none created */
			assert(IN_BOUNDS);      /* never more held than the capacity */
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
	/* All return: a run that stops before this is an invalid end state. */
	atomic {
		finished == PROCESSES;
		assert(held == 0 && inFlight == 0 && debt == 0 && queued == 0);
		assert(mu == NONE && due == 0 && competitor == NONE && !starving);
		assert(word == CAPACITY)        /* all permits free, both flags down */
	}
}
