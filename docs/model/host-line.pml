/*
 * The queue of package host, among processes and within one: places.go, queue.go,
 * and of slots.go what finds and gives back one slot.
 *
 * Callers in some operating-system processes, "hosts" here because Promela has
 * processes of its own, ask for one slot each. Every host has a driver, which
 * waits on behalf of its first caller. Callers may give up at any moment; a
 * host may die at any moment, which drops its locks and leaves its part of the
 * shared memory as it is.
 *
 * One step here is one atomic operation of the code on the file or on a mutex,
 * or one system call on a lock or a futex. What a mutex guards is worked on in
 * the step next to it.
 *
 * Nobody polls, so that a caller whom nobody wakes is an invalid end state. With
 * POLL everybody does, as soon as nothing else happens any more, and a caller
 * who then still sleeps while all others do is an assertion that fails.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   HOSTS=n       2 unless told
 *   CALLERS=n     3 unless told; those beyond the number of hosts are host 0's
 *   SLOTS=n       1 unless told
 *   ARRIVE        callers look whether they need to wait at all, instead of
 *                 standing in line at once
 *   HINTS         slots are found by the bitmap first, with all its steps
 *   HOLDERS=n     so many callers, the last ones, have a slot from the start; 1
 *                 unless told
 *   ASLEEP=m      those callers, bit by bit, are in line from the start, and
 *                 their drivers asleep
 *   KEEP          who is served keeps the slot for ever
 *   CANCEL=m      those callers, bit by bit, may give up
 *   TRY=n         the last n callers who do not hold would not wait
 *   UNSETTLED     somebody has a slot beyond the capacity and keeps it, so that
 *                 one slot less may be had
 *   FINE          a look along the line is one step per place, not one in all
 *   POLL=n        everybody polls in the end, and n times before
 *   DEATH=n       host n dies
 *   PASS          somebody does not look for so long that it counts as stopped
 *   MUTANT_...    a protocol broken on purpose: an error must be found
 */

#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef CALLERS
#define CALLERS 3
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef HOLDERS
#define HOLDERS 1
#endif
#ifndef ASLEEP
#define ASLEEP 0
#endif
#ifndef CANCEL
#define CANCEL 0
#endif
#ifndef TRY
#define TRY 0
#endif

#define NONE    255
#define HOST(c) ((c) < HOSTS -> (c) : 0)
#define HOLDS(c) ((c) >= CALLERS - HOLDERS)
#define TRIES(c) (!HOLDS(c) && (c) >= CALLERS - HOLDERS - TRY)

/* ---------------------------------------- the file, which survives its users */

byte tickets = 0;               /* the last drawn */
byte high = 0;                  /* no place from here on has a waiter */
byte raises = 0;                /* how often it was raised, in the same word */
byte bits = 0;                  /* hints: slots somebody has or is taking */
byte ticket[HOSTS];             /* the place of a host is that of its number */
bool word[HOSTS];               /* changed since the driver last read it */
#ifdef PASS
bool stopped[HOSTS];            /* the beat is too old */
#define STOPPED(i) stopped[i]
#else
#define STOPPED(i) false
#endif

/* ------------------------------------------------------------- the kernel */

byte lock[SLOTS];               /* 1 + the host that has it, or 0 */
bool asleep[HOSTS];             /* the driver, on its word */
#ifdef DEATH
bool dead[HOSTS];
#define ALIVE(i) (!dead[i])
#else
#define ALIVE(i) true
#endif

/* ------------------------------------------------- within a host, under mu */

bool mu[HOSTS];
bool driven[HOSTS];
bool placed[HOSTS];             /* has a place */
byte firstIn[HOSTS];
byte secondIn[HOSTS];           /* no host has more than two waiting */
byte drawn[CALLERS];            /* the ticket of a caller */
byte ended[CALLERS];            /* 1 + the slot it was given */

/* ------------------------------------- not in the code, for the properties */

byte ahead[CALLERS + HOSTS + 2]; /* whom a caller, or a driver, saw or should
                                 * have seen ahead, as long as it stands there */
byte unserved = 0;              /* callers who wait or are to come, bit by bit */
#ifdef POLL
bool stale = false;             /* everybody has looked in vain */
byte polls = POLL;
#endif

#define SELF     _pid
#ifdef POLL
#define SERVED(c) unserved = unserved & ~(1 << (c)); stale = false
#else
#define SERVED(c) unserved = unserved & ~(1 << (c))
#endif

/* Who has a slot gives it back, unless that is of no interest to anybody. */
#ifdef KEEP
#define RELEASES(c) (HOLDS(c) && unserved != 0)
#else
#define RELEASES(c) (unserved != 0)
#endif

/* forget: whoever was ahead at place p is not any more. */
inline forget(p) {
	q = 0;
	do
	:: q < CALLERS + HOSTS + 2 -> ahead[q] = ahead[q] & ~(1 << p); q++
	:: else -> break
	od;
	q = 0
}

/* sees: who looks should see all who stand in line with a lower ticket. */
inline sees(than) {
	q = 0;
	do
	:: q < HOSTS ->
		if
		:: ticket[q] != 0 && ticket[q] < than && q < high && !STOPPED(q) && ALIVE(q) ->
			ahead[SELF] = ahead[SELF] | (1 << q)
		:: else
		fi;
		q++
	:: else -> break
	od;
	q = 0
}

#define LOCK(p)   !mu[p] -> mu[p] = true        /* in an atomic step */
#define UNLOCK(p) assert(mu[p]); mu[p] = false

/* ------------------------------------------------------------ places.go */

#define NEXT \
	if \
	:: v != 0 && !STOPPED(i) && (at == NONE || v < t) -> at = i; t = v \
	:: else \
	fi; \
	v = 0; \
	i++

/* first leaves in at the place whose turn it is, in t its ticket. Who looks on
 * behalf of a ticket has it in mine. */
inline first() {
	d_step {
		if
		:: mine != 0 -> sees(mine)
		:: else
		fi;
		at = NONE;
		t = 0;
		i = 0;
#ifdef FINE
		h = high                                                /* load */
	};
	do
	:: atomic { i >= h -> h = 0; i = 0; break }
	:: atomic { i < h -> v = ticket[i] };                           /* load */
	   d_step { NEXT }                                              /* load */
	od
#else
		do
		:: i < high -> v = ticket[i]; NEXT
		:: else -> break
		od;
		i = 0
	}
#endif
}

/* bury puts the dead out of the line. */
inline bury() {
	d_step {
		if
		:: ticket[at] == t -> ticket[at] = 0                    /* CAS */
		:: else
		fi
	}
}

inline living() {
	do
	:: first();
	   if
#ifdef MUTANT_BURY_NOBODY
	   :: true -> break
#else
	   :: at == NONE || ALIVE(at) -> break                          /* conflict */
	   :: at != NONE && !ALIVE(at) -> bury()
#endif
	   fi
	od
}

/* nudge leaves in slept whether somebody did. */
inline nudge(x) {
	d_step {
#ifndef MUTANT_NUDGE_WITHOUT_WORD
		word[x] = driven[x];                                    /* add */
#endif
		slept = asleep[x];
		asleep[x] = false                                       /* wake */
	}
}

inline wakeFirst() {
	do
	:: first();
	   if
	   :: at == NONE -> break
	   :: else
	   fi;
	   nudge(at);
	   if
	   :: slept || ALIVE(at) -> break                               /* conflict */
	   :: else -> bury()
	   fi
	od;
	atomic { at = 0; t = 0; slept = false }
}

/* raiseHigh: a CAS that fails starts over, so it is one step. The word has the
 * number of raises too. */
#define RAISE_HIGH(to) high = (high < (to) -> (to) : high); raises++     /* CAS */

#if defined(PASS) && defined(DEATH)
#define VACANT(i) (ticket[i] == 0 || STOPPED(i) && !ALIVE(i))
#else
#define VACANT(i) (ticket[i] == 0)
#endif

/* lowerHigh continues with mu of host p kept or not. */
inline lowerHigh(p, keep) {
	do
	:: atomic {
		was = high; sawRaises = raises;                         /* load */
		to = was;
#ifdef FINE
	   };
	   do
	   :: d_step { to > 0 && VACANT(to-1) -> ticket[to-1] = 0; to-- } /* load, CAS */
	   :: to == 0 || !VACANT(to-1) -> break                         /* load */
	   od;
	   atomic {
#else
		do
		:: to > 0 && VACANT(to-1) -> ticket[to-1] = 0; to--
		:: else -> break
		od;
#endif
		if
		:: to == was -> was = 0; to = 0; sawRaises = 0; mu[p] = keep; break
		:: else
		fi
	   };
	   atomic {
		if
#ifdef MUTANT_LOWER_UNCOUNTED
		:: high == was -> high = to                             /* CAS */
#else
		:: high == was && raises == sawRaises -> high = to      /* CAS */
#endif
		:: else
		fi;
		was = 0; to = 0; sawRaises = 0; mu[p] = keep; break
	   }
	od
}

/* -------------------------------------------------------------- queue.go */

/* showFirst: showAt or clearAt. The mutex is left with the last step, unless
 * it is kept. A store of what is there already is no step. */
#define SHOWN(p) (ticket[p] == drawn[firstIn[p]])
inline showFirst(p, keep) {
	if
	:: atomic { !placed[p] || firstIn[p] != NONE && SHOWN(p) && high > p -> UNLOCK(p); mu[p] = keep } /* load */
	:: atomic { placed[p] && firstIn[p] != NONE && !(SHOWN(p) && high > p) ->
		if
		:: !SHOWN(p) -> to = ticket[p]; forget(p); ticket[p] = drawn[firstIn[p]] /* swap */
		:: else -> to = ticket[p]
		fi };
	   atomic {
		if
		:: to == 0 || high <= p -> RAISE_HIGH(p + 1)            /* load, CAS */
		:: else
		fi;
		to = 0; UNLOCK(p); mu[p] = keep }
	:: atomic { placed[p] && firstIn[p] == NONE -> forget(p); ticket[p] = 0 }; /* store */
	   lowerHigh(p, keep)
	fi
}

#define QUEUED(p, c) (firstIn[p] == (c) || secondIn[p] == (c))

inline append(p, c) {
	assert(mu[p] && secondIn[p] == NONE);
	if
	:: firstIn[p] == NONE -> firstIn[p] = c
	:: else -> secondIn[p] = c
	fi
}

inline remove(p, c) {
	assert(mu[p] && QUEUED(p, c));
	drawn[c] = 0;
	if
	:: firstIn[p] == c -> firstIn[p] = secondIn[p]
	:: else
	fi;
	secondIn[p] = NONE
}

/* ------------------------------------------------------------- slots.go */

#define BIT(s) (1 << (s))

inline unlockSlot() {
	atomic { assert(lock[got] == p + 1); lock[got] = 0 };           /* unlock */
	bits = bits & ~BIT(got)                                         /* and */
}

/* claim leaves in got a slot that it locked, or NONE. */
inline claim(p) {
#ifdef HINTS
	/* lockHinted */
	d_step { held = bits; s = 0; got = NONE };                      /* load */
	do
	:: atomic { s == SLOTS -> s = 0; held = 0; break }
	:: d_step { s < SLOTS && (held & BIT(s)) -> s++ }
	:: atomic { s < SLOTS && !(held & BIT(s)) && (bits & BIT(s)) -> s++ } /* or */
	:: atomic { s < SLOTS && !(held & BIT(s)) && !(bits & BIT(s)) ->
		bits = bits | BIT(s) };                                 /* or */
	   atomic {
		if
		:: lock[s] == 0 -> lock[s] = p + 1; got = s; s = 0; held = 0; break /* lock */
		:: else -> s++
		fi
	   }
	od;
	/* lockScanned */
	do
	:: got != NONE -> break
	:: got == NONE ->
	   do
	   :: d_step { s < SLOTS -> held = held | (lock[s] != 0 -> BIT(s) : 0); s++ }
	   :: atomic { s == SLOTS -> s = 0; break }
	   od;
	   bits = bits & held;                                          /* and */
	   atomic {
		do
		:: s < SLOTS && (held & BIT(s)) -> s++
		:: else -> break
		od;
		held = 0;
		if
		:: s == SLOTS -> s = 0; break
		:: s < SLOTS && lock[s] != 0 -> s = 0                   /* lock */
		:: s < SLOTS && lock[s] == 0 -> lock[s] = p + 1; got = s; s = 0 /* lock */
		fi
	   };
	   if
	   :: got == NONE
	   :: atomic { got != NONE -> bits = bits | BIT(got); break }   /* or */
	   fi
	od;
#else
	/* As if by the locks alone. */
	d_step { s = 0; got = NONE };
	do
	:: d_step { s < SLOTS && lock[s] != 0 -> s++ }                  /* lock */
	:: atomic { s < SLOTS && lock[s] == 0 ->
		lock[s] = p + 1; bits = bits | BIT(s); got = s; s = 0; break } /* lock */
	:: atomic { s == SLOTS -> s = 0; break }
	od;
#endif
#ifdef UNSETTLED
	/* overCapacity: the one beyond counts too. */
	if
	:: got == NONE
	:: got != NONE ->
	   do
	   :: d_step { s < SLOTS -> held = held + (lock[s] != 0 -> 1 : 0); s++ }
	   :: atomic { s == SLOTS -> s = 0; break }
	   od;
	   if
	   :: atomic { held + 1 <= SLOTS -> held = 0 }
	   :: atomic { held + 1 > SLOTS -> held = 0 };
		unlockSlot();
		got = NONE
	   fi
	fi
#endif
}

#define HINTED ((bits & ((1 << SLOTS) - 1)) != (1 << SLOTS) - 1)

/* free gives got back. */
inline free(p) {
	/* handOver */
#ifndef UNSETTLED
	if
	:: firstIn[p] == NONE                                           /* load */
	:: firstIn[p] != NONE ->                                        /* load */
	   if
	   :: !mu[p] && firstIn[p] == NONE
	   :: atomic { !mu[p] && firstIn[p] != NONE ->
		mu[p] = true; c = firstIn[p]; sees(drawn[c]) };
#ifdef MUTANT_HAND_OVER_BLINDLY
		d_step { at = p; t = drawn[c] };
#else
		first();
#endif
		if
		:: atomic { at != p || t != drawn[c] || !placed[p] ->
			ahead[SELF] = 0; c = 0; at = 0; t = 0; UNLOCK(p) }
		:: atomic { at == p && t == drawn[c] && placed[p] ->
			assert(ahead[SELF] == 0);         /* nobody is overtaken */
			at = 0;
			t = 0;
			remove(p, c);
			ended[c] = got + 1;
			SERVED(c);
			c = 0;
			got = NONE };
		   showFirst(p, false);
#ifndef MUTANT_HAND_OVER_TELLS_NOBODY
		   if
		   :: HINTED -> wakeFirst()                             /* load */
		   :: !HINTED                                           /* load */
		   fi
#endif
		fi
	   fi
	fi;
#endif
	if
	:: got == NONE
	:: got != NONE ->
#ifdef MUTANT_WAKE_THEN_UNLOCK
	   wakeFirst();
	   unlockSlot();
#else
	   unlockSlot();
	   wakeFirst();
#endif
	   got = 0
	fi
}

/* -------------------------------------------------------------- processes */

#define LOCALS \
	byte at, t, i, h, v, was, to, sawRaises, s, got, held, c, q, mine; \
	bool slept

inline drives(p) {
	if
	:: asleep[p] -> goto end2
	:: !asleep[p]
	fi;
end:	driven[p];

leads:
	/* leader. On an empty line it lowers high once more; left out. */
	atomic {
		LOCK(p);
		word[p] = false;                                        /* load */
		if
		:: firstIn[p] == NONE -> driven[p] = false; mu[p] = false; goto end
		:: else ->
			placed[p] = true;
#ifdef PASS
			stopped[p] = false;                             /* store */
#endif
			w = firstIn[p];
			mine = drawn[w]
		fi
	};
#ifdef MUTANT_STAND_LATE
	mu[p] = false;
#else
	showFirst(p, false);
#endif

	/* attempt */
#ifdef MUTANT_ATTEMPT_OUT_OF_TURN
	atomic { sees(mine); at = NONE; t = 0 };
#else
	living();
#endif
	if
	:: at != NONE && t < mine ->
		goto sleeps
	:: at == NONE || t >= mine
	fi;
	atomic { at = 0; t = 0; mine = 0 };
	claim(p);
	if
	:: got == NONE -> goto sleeps
	:: got != NONE
	fi;

	/* conclude */
	if
	:: atomic { !mu[p] && QUEUED(p, w) ->
		mu[p] = true;
		assert(ahead[SELF] == 0);        /* nobody is overtaken */
		remove(p, w);
		ended[w] = got + 1;
		SERVED(w);
		got = 0;
		w = 0;
		mine = 0 };
	   showFirst(p, false)
	:: atomic { !mu[p] && !QUEUED(p, w) -> ahead[SELF] = 0; w = 0; mine = 0 };
	   free(p)
	fi;
#ifndef MUTANT_SERVED_TELLS_NOBODY
	if
	:: HINTED -> wakeFirst()                                        /* load */
	:: !HINTED                                                      /* load */
	fi;
#endif
	goto leads;

sleeps:
	atomic { ahead[SELF] = 0; at = 0; t = 0; got = 0; w = 0; mine = 0 };
#ifdef MUTANT_STAND_LATE
	atomic { LOCK(p) };
	showFirst(p, false);
#endif
#ifdef MUTANT_READ_WORD_LATE
	word[p] = false;
#endif
	atomic {
		if
		:: word[p] -> goto leads                                /* wait */
		:: else -> asleep[p] = true
		fi
	};
	/* Asleep on behalf of nobody is no harm. */
end2:	if
	:: !asleep[p]
#ifdef POLL
	:: atomic { asleep[p] && polls > 0 -> polls--; asleep[p] = false }
#endif
	fi;
	goto leads
}

inline calls(id, p) {
	if
	:: atomic { HOLDS(id) -> got = CALLERS - 1 - id; goto holds }
	:: !HOLDS(id) && (ASLEEP & BIT(id)) -> goto parks
	:: !HOLDS(id) && !(ASLEEP & BIT(id))
	fi;

#ifdef ARRIVE
	/* takeRuns: busy */
	atomic { mine = NONE; sees(mine) };
#ifndef MUTANT_BUSY_UNASKED
	if
	:: firstIn[p] != NONE -> goto waits                             /* load */
	:: firstIn[p] == NONE
	fi;
	if
	:: high == 0 -> goto claims                                     /* load */
	:: high > 0
	fi;
	living();
	if
	:: at != NONE -> goto waits
	:: at == NONE
	fi;
	atomic { at = 0; t = 0; mine = 0 };
	lowerHigh(p, mu[p]);
#endif
claims:
	mine = 0;
	claim(p);
	if
	:: atomic { got != NONE ->
		assert(ahead[SELF] == 0);               /* nobody is overtaken */
		SERVED(id);
		goto holds }
	:: got == NONE
	fi;
#endif

waits:
	atomic { ahead[SELF] = 0; at = 0; t = 0; got = 0; mine = 0 };
	if
	:: atomic { TRIES(id) -> SERVED(id); goto returns }
	:: !TRIES(id)
	fi;
	/* enqueue */
	atomic {
		LOCK(p);
		tickets++;                                              /* add */
		drawn[id] = tickets;
		append(p, id);
#ifdef MUTANT_STAND_LATE
		if
		:: true
#else
		if
		:: !placed[p]
		:: else -> leaves = driven[p] && firstIn[p] == id; driven[p] = true; goto stands
#endif
		fi;
		driven[p] = true;
		mu[p] = false;
		goto parks
	};
stands:
	/* A driver that is started or not asleep cannot lock mu yet. */
	showFirst(p, leaves);
	if
	:: !leaves
	:: leaves ->                            /* asleep for somebody who left */
#ifndef MUTANT_NOT_ROUSED
	   nudge(p);
#endif
	   atomic { slept = false; leaves = false; UNLOCK(p) }
	fi;

parks:
	/* How the wait may end is chosen here, where it starts to matter. */
	if
	:: CANCEL & BIT(id) -> leaves = true
	:: true
	fi;
	if
	:: atomic { ended[id] != 0 -> got = ended[id] - 1; ended[id] = 0; goto holds }
	:: leaves
	fi;
#if CANCEL
	/* dequeue */
	if
	:: !mu[p] && !QUEUED(p, id) ->
	   atomic { ended[id] != 0 -> got = ended[id] - 1; ended[id] = 0; goto holds }
	:: atomic { !mu[p] && QUEUED(p, id) -> mu[p] = true; leaves = (firstIn[p] == id); remove(p, id); SERVED(id) };
	   showFirst(p, false);
#ifndef MUTANT_LEAVE_UNTOLD
	   if
	   :: leaves -> wakeFirst()
	   :: !leaves
	   fi;
#endif
	   goto returns
	fi;
#endif

holds:
	if
	:: RELEASES(id) -> free(p)
	:: !RELEASES(id)
	fi;

returns:
	skip
}

proctype driver(byte p) {
	LOCALS;
	byte w;
	drives(p)
}

proctype caller(byte id) {
	LOCALS;
	byte p = HOST(id);
	bool leaves;
	calls(id, p)
}

#ifdef DEATH
/* The same, of the host that dies. A guard on every step costs spin most of its
 * reductions, so those who live have none. */
proctype mortalDriver(byte p) {
	LOCALS;
	byte w;
	{ drives(p) } unless { dead[p] }
}

proctype mortalCaller(byte id) {
	LOCALS;
	byte p = HOST(id);
	bool leaves;
	{ calls(id, p) } unless { dead[p] }
}

/* Everything of the dead is gone but what is in the file. */
proctype killer() {
	byte q;
	atomic {
		dead[DEATH] = true;
		forget(DEATH);
		do
		:: q < SLOTS -> lock[q] = (lock[q] == DEATH + 1 -> 0 : lock[q]); q++
		:: else -> break
		od;
		q = 0;
		do
		:: q < CALLERS -> unserved = unserved & ~(HOST(q) == DEATH -> 1 << q : 0); q++
		:: else -> break
		od;
		q = 0
	}
}
#define MORTAL(p) ((p) == DEATH)
#else
#define MORTAL(p)        false
#define mortalDriver(p)  driver(p)
#define mortalCaller(id) caller(id)
#endif

#ifdef PASS
/* For somebody too much time goes by without a look, at any moment. */
proctype clock() {
	byte p, q;
	atomic {
		do
		:: p + 1 < HOSTS -> p++
		:: break
		od;
		stopped[p] = true;
		forget(p);
		p = 0
	}
}
#endif

init {
	byte i, p;
	atomic {
		unserved = (1 << (CALLERS - HOLDERS)) - 1;
		do
		:: i < HOSTS -> firstIn[i] = NONE; secondIn[i] = NONE; i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < HOLDERS -> lock[i] = HOST(CALLERS - 1 - i) + 1; bits = bits | BIT(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < CALLERS && !(ASLEEP & BIT(i)) -> i++
		:: i < CALLERS && (ASLEEP & BIT(i)) ->
			tickets++;
			drawn[i] = tickets;
			p = HOST(i);
			mu[p] = true;
			append(p, i);
			mu[p] = false;
			driven[p] = true;
			placed[p] = true;
			asleep[p] = true;
			ticket[p] = drawn[firstIn[p]];
			RAISE_HIGH(p + 1);
			p = 0;
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < HOSTS && !MORTAL(i) -> run driver(i); i++
		:: i < HOSTS && MORTAL(i) -> run mortalDriver(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < CALLERS && !MORTAL(HOST(i)) -> run caller(i); i++
		:: i < CALLERS && MORTAL(HOST(i)) -> run mortalCaller(i); i++
		:: else -> break
		od;
		i = 0;
#ifdef PASS
		run clock();
#endif
#ifdef DEATH
		run killer()
#endif
	}
	/* Everybody returns: not to get past this is an invalid end state. */
#ifdef POLL
	do
	:: unserved == 0 -> break
	:: atomic { timeout && unserved != 0 ->
		assert(!stale);         /* nobody is stuck for ever */
		stale = true;
		do
		:: i < HOSTS -> asleep[i] = false; i++
		:: else -> break
		od;
		i = 0 }
	od
#else
	unserved == 0
#endif
}
