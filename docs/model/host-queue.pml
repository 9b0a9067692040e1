/*
 * The queue of package host, among processes and within one: places.go, queue.go,
 * and the part of slots.go that finds and releases one slot.
 *
 * Callers in some operating-system processes, "hosts" here because Promela has
 * processes of its own, acquire one slot each. Every host has a driver, which
 * waits on behalf of its first caller. Callers may stop waiting at any moment. A
 * host may be killed at any moment, which drops its locks and leaves its part of
 * the shared memory as it is.
 *
 * One step of the model is one atomic operation of the code on the file or on a
 * mutex, or one system call on a lock or a futex. Work on what a mutex guards is
 * part of the step next to it.
 *
 * There is no polling, so that a caller that is never woken is an invalid end
 * state. With POLL all drivers poll as soon as nothing else happens any more. It is
 * an assertion failure if a caller still waits then and no process can proceed.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   HOSTS=n       default 2
 *   CALLERS=n     default 3; those beyond the number of hosts are in host 0
 *   SLOTS=n       default 1
 *   ARRIVE        callers check whether they need to wait at all, instead of
 *                 joining the queue at once
 *   HINTS         slots are found by the bitmap first, with all its steps
 *   HOLDERS=n     the last n callers hold a slot from the start; default 1
 *   ASLEEP=m      these callers, as a bit mask, are queued from the start, and
 *                 their drivers are asleep; with WATCH the first one watches
 *   KEEP          callers that are served keep the slot for ever
 *   CANCEL=m      these callers, as a bit mask, may stop waiting
 *   TRY=n         the last n callers that do not hold would not wait
 *   UNSETTLED     a slot beyond the capacity is held for ever, so that one slot
 *                 less is available
 *   FINE          a scan of the queue is one step per place instead of one in all
 *   POLL=n        all drivers poll at the end, and n times before
 *   KILL=n        host n is killed
 *   WATCH         the first driver watches host KILL, which holds a slot, and is
 *                 notified of its end
 *   PASS          one host does not poll for so long that it counts as stopped
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

/* ------------------------------------ the file, which outlives its processes */

byte tickets = 0;               /* the last ticket issued */
byte high = 0;                  /* no place from here on has a waiter */
byte raises = 0;                /* how often it was raised, in the same word */
byte bits = 0;                  /* hints: slots that are held or being taken */
byte ticket[HOSTS];             /* the place of a host is at its number */
bool word[HOSTS];               /* changed since the driver last read it */
#ifdef PASS
bool stopped[HOSTS];            /* the beat is too old */
#define STOPPED(i) stopped[i]
#else
#define STOPPED(i) false
#endif

/* ------------------------------------------------------------- the kernel */

byte lock[SLOTS];               /* 1 + the host that holds it, or 0 */
bool asleep[HOSTS];             /* the driver, on its word */
#ifdef WATCH
bool watching[HOSTS];           /* the driver has a descriptor of host KILL */
#endif
#ifdef KILL
bool killed[HOSTS];
#define ALIVE(i) (!killed[i])
#else
#define ALIVE(i) true
#endif

/* ------------------------------------------------- within a host, under mu */

bool mu[HOSTS];
bool driven[HOSTS];
bool placed[HOSTS];             /* has a place */
byte firstIn[HOSTS];
byte secondIn[HOSTS];           /* no host has more than two waiters */
byte drawn[CALLERS];            /* the ticket of a caller */
byte ended[CALLERS];            /* 1 + the slot it was given */

/* --------------------------------------- not in the code, for the properties */

byte ahead[CALLERS + HOSTS + 2]; /* hosts that a caller, or a driver, saw or should
                                 * have seen ahead, as long as they are queued there */
byte unserved = 0;              /* callers that wait or will arrive, as a bit mask */
#ifdef POLL
bool stale = false;             /* all drivers have polled in vain */
byte polls = POLL;
#endif

#define SELF     _pid
#ifdef POLL
#define SERVED(c) unserved = unserved & ~(1 << (c)); stale = false
#else
#define SERVED(c) unserved = unserved & ~(1 << (c))
#endif

/* A holder releases its slot, unless no caller is left that could use it. */
#ifdef KEEP
#define RELEASES(c) (HOLDS(c) && unserved != 0)
#else
#define RELEASES(c) (unserved != 0)
#endif

/* clearAhead: the host at place p is not ahead of any caller any more. */
inline clearAhead(p) {
	q = 0;
	do
	:: q < CALLERS + HOSTS + 2 -> ahead[q] = ahead[q] & ~(1 << p); q++
	:: else -> break
	od;
	q = 0
}

/* noteAhead: a scan should see all queued hosts with a lower ticket. */
inline noteAhead(than) {
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

/* first sets at to the place whose turn it is, and t to its ticket. A scan on
 * behalf of a ticket has it in mine. */
inline first() {
	d_step {
		if
		:: mine != 0 -> noteAhead(mine)
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

/* clearKilled removes a killed host from the queue. */
inline clearKilled() {
	d_step {
		if
		:: ticket[at] == t -> ticket[at] = 0                    /* CAS */
		:: else
		fi
	}
}

inline firstLive() {
	do
	:: first();
	   if
#ifdef MUTANT_KEEP_KILLED
	   :: true -> break
#else
	   :: at == NONE || ALIVE(at) -> break                          /* conflict */
	   :: at != NONE && !ALIVE(at) -> clearKilled()
#endif
	   fi
	od
}

/* wake sets slept to whether the driver was asleep. */
inline wake(x) {
	d_step {
#ifndef MUTANT_WAKE_WITHOUT_WORD
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
	   wake(at);
	   if
	   :: slept || ALIVE(at) -> break                               /* conflict */
	   :: else -> clearKilled()
	   fi
	od;
	atomic { at = 0; t = 0; slept = false }
}

/* raiseHigh: a CAS that fails starts over, so it is one step. The word contains
 * the number of raises too. */
#define RAISE_HIGH(to) high = (high < (to) -> (to) : high); raises++     /* CAS */

#if defined(PASS) && defined(KILL)
#define VACANT(i) (ticket[i] == 0 || STOPPED(i) && !ALIVE(i))
#else
#define VACANT(i) (ticket[i] == 0)
#endif

/* lowerHigh ends with mu of host p kept or not. */
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

/* publishFirst: publishFirstLocked. The mutex is unlocked with the last step,
 * unless it is kept. A store of the present value is no step. */
#define PUBLISHED(p) (ticket[p] == drawn[firstIn[p]])
inline publishFirst(p, keep) {
	if
	:: atomic { !placed[p] || firstIn[p] != NONE && PUBLISHED(p) && high > p -> UNLOCK(p); mu[p] = keep } /* load */
	:: atomic { placed[p] && firstIn[p] != NONE && !(PUBLISHED(p) && high > p) ->
		if
		:: !PUBLISHED(p) -> to = ticket[p]; clearAhead(p); ticket[p] = drawn[firstIn[p]] /* swap */
		:: else -> to = ticket[p]
		fi };
	   atomic {
		if
		:: to == 0 || high <= p -> RAISE_HIGH(p + 1)            /* load, CAS */
		:: else
		fi;
		to = 0; UNLOCK(p); mu[p] = keep }
	:: atomic { placed[p] && firstIn[p] == NONE -> clearAhead(p); ticket[p] = 0 }; /* store */
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

/* claim sets got to a slot that it locked, or to NONE. */
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
	/* overCapacity: the slot beyond the capacity counts too. */
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

#define BITMAP_FREE ((bits & ((1 << SLOTS) - 1)) != (1 << SLOTS) - 1)

/* free releases got. */
inline free(p) {
	/* handOff */
#ifndef UNSETTLED
	if
	:: firstIn[p] == NONE                                           /* load */
	:: firstIn[p] != NONE ->                                        /* load */
	   if
	   :: !mu[p] && firstIn[p] == NONE
	   :: atomic { !mu[p] && firstIn[p] != NONE ->
		mu[p] = true; c = firstIn[p]; noteAhead(drawn[c]) };
#ifdef MUTANT_HAND_OFF_BLINDLY
		d_step { at = p; t = drawn[c] };
#else
		first();
#endif
		if
		:: atomic { at != p || t != drawn[c] || !placed[p] ->
			ahead[SELF] = 0; c = 0; at = 0; t = 0; UNLOCK(p) }
		:: atomic { at == p && t == drawn[c] && placed[p] ->
			assert(ahead[SELF] == 0);         /* no caller is overtaken */
			at = 0;
			t = 0;
			remove(p, c);
			ended[c] = got + 1;
			SERVED(c);
			c = 0;
			got = NONE };
		   publishFirst(p, false);
#ifndef MUTANT_HAND_OFF_WITHOUT_WAKE
		   if
		   :: BITMAP_FREE -> wakeFirst()                        /* load */
		   :: !BITMAP_FREE                                      /* load */
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
#ifdef KILL
	fresh = true;
#endif

leads:
	/* leader. On an empty queue it lowers high once more; left out. */
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
#ifdef MUTANT_PUBLISH_LATE
	mu[p] = false;
#else
	publishFirst(p, false);
#endif

	/* attempt */
#ifdef MUTANT_ATTEMPT_OUT_OF_TURN
	atomic { noteAhead(mine); at = NONE; t = 0 };
#else
#ifdef KILL
	/* A caller that has just joined relies on the check in busy. */
	if
	:: fresh ->
	   first();
	   if
	   :: at != NONE && t < mine -> goto sleeps
	   :: else
	   fi
	:: !fresh
	fi;
#endif
	firstLive();
#endif
	if
	:: at != NONE && t < mine ->
		goto sleeps
	:: at == NONE || t >= mine
	fi;
	atomic { at = 0; t = 0; mine = 0 };
	claim(p);
	if
#ifdef WATCH
	:: got == NONE && watching[p] -> goto sleeps
	:: atomic { got == NONE && !watching[p] ->
		/* refresh. If the host has ended before, nothing will notify the driver. */
		watching[p] = !killed[KILL] };
#ifdef MUTANT_WATCH_THEN_SLEEP
	   goto sleeps
#else
	   atomic { ahead[SELF] = 0; at = 0; t = 0; got = 0; w = 0; mine = 0; goto leads }
#endif
#else
	:: got == NONE -> goto sleeps
#endif
	:: got != NONE
	fi;

	/* conclude */
	if
	:: atomic { !mu[p] && QUEUED(p, w) ->
		mu[p] = true;
		assert(ahead[SELF] == 0);        /* no caller is overtaken */
		remove(p, w);
		ended[w] = got + 1;
		SERVED(w);
		got = 0;
		w = 0;
		mine = 0 };
	   publishFirst(p, false)
	:: atomic { !mu[p] && !QUEUED(p, w) -> ahead[SELF] = 0; w = 0; mine = 0 };
	   free(p)
	fi;
#ifndef MUTANT_SERVED_WITHOUT_WAKE
	if
	:: BITMAP_FREE -> wakeFirst()                                   /* load */
	:: !BITMAP_FREE                                                 /* load */
	fi;
#endif
	goto leads;

sleeps:
	atomic {
#ifdef KILL
		fresh = false;
#endif
		ahead[SELF] = 0; at = 0; t = 0; got = 0; w = 0; mine = 0 };
#ifdef MUTANT_PUBLISH_LATE
	atomic { LOCK(p) };
	publishFirst(p, false);
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
	/* A driver may sleep although no caller is left. */
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
	/* tryClaim: busy */
	atomic { mine = NONE; noteAhead(mine) };
#ifndef MUTANT_SKIP_BUSY
	if
	:: firstIn[p] != NONE -> goto waits                             /* load */
	:: firstIn[p] == NONE
	fi;
	if
	:: high == 0 -> goto claims                                     /* load */
	:: high > 0
	fi;
	firstLive();
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
		assert(ahead[SELF] == 0);               /* no caller is overtaken */
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
#ifdef MUTANT_PUBLISH_LATE
		if
		:: true
#else
		if
		:: !placed[p]
		:: else -> leaves = driven[p] && firstIn[p] == id; driven[p] = true; goto publishes
#endif
		fi;
		driven[p] = true;
		mu[p] = false;
		goto parks
	};
publishes:
	/* A driver that is started or not asleep cannot lock mu yet. */
	publishFirst(p, leaves);
	if
	:: !leaves
	:: leaves ->                            /* asleep for a caller that left */
#ifndef MUTANT_NOT_WOKEN
	   wake(p);
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
	   publishFirst(p, false);
#ifndef MUTANT_LEAVE_WITHOUT_WAKE
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
#ifdef KILL
	bool fresh = false;
#endif
	drives(p)
}

proctype caller(byte id) {
	LOCALS;
	byte p = HOST(id);
	bool leaves;
	calls(id, p)
}

#ifdef KILL
/* The same for a host that is killed. A guard on every step costs spin most of
 * its reductions, so the other hosts have none. */
proctype killableDriver(byte p) {
	LOCALS;
	byte w;
	bool fresh = false;
	{ drives(p) } unless { killed[p] }
}

proctype killableCaller(byte id) {
	LOCALS;
	byte p = HOST(id);
	bool leaves;
	{ calls(id, p) } unless { killed[p] }
}

/* Only what is in the file remains of the killed host. */
proctype killer() {
	byte q;
#ifdef WATCH
	bool slept;
#endif
	atomic {
		killed[KILL] = true;
		clearAhead(KILL);
		do
		:: q < SLOTS -> lock[q] = (lock[q] == KILL + 1 -> 0 : lock[q]); q++
		:: else -> break
		od;
		q = 0;
		do
		:: q < CALLERS -> unserved = unserved & ~(HOST(q) == KILL -> 1 << q : 0); q++
		:: else -> break
		od;
		q = 0
	}
#ifdef WATCH
	/* The kernel drops the locks before it notifies. */
	do
	:: q < HOSTS && watching[q] -> wake(q); q++
	:: q < HOSTS && !watching[q] -> q++
	:: else -> break
	od
#endif
}
#define KILLABLE(p) ((p) == KILL)
#else
#define KILLABLE(p)        false
#define killableDriver(p)  driver(p)
#define killableCaller(id) caller(id)
#endif

#ifdef PASS
/* One host does not poll for too long, at any moment. */
proctype clock() {
	byte p, q;
	atomic {
		do
		:: p + 1 < HOSTS -> p++
		:: break
		od;
		stopped[p] = true;
		clearAhead(p);
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
#ifdef WATCH
			watching[p] = tickets == 1;
#endif
			ticket[p] = drawn[firstIn[p]];
			RAISE_HIGH(p + 1);
			p = 0;
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < HOSTS && !KILLABLE(i) -> run driver(i); i++
		:: i < HOSTS && KILLABLE(i) -> run killableDriver(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < CALLERS && !KILLABLE(HOST(i)) -> run caller(i); i++
		:: i < CALLERS && KILLABLE(HOST(i)) -> run killableCaller(i); i++
		:: else -> break
		od;
		i = 0;
#ifdef PASS
		run clock();
#endif
#ifdef KILL
		run killer()
#endif
	}
	/* All return: a run that stops before this is an invalid end state. */
#ifdef POLL
	do
	:: unserved == 0 -> break
	:: atomic { timeout && unserved != 0 ->
		assert(!stale);         /* no caller is stuck for ever */
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
