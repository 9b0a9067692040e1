/*
 * The bound of waiters of package host among processes: admitLocked and
 * lowerHigh of places.go, and highMark and queueLength of layout.go.
 *
 * Each operating-system process has one caller, which joins the queue if MaxWaiters
 * allows. No caller leaves, so that at the end exactly as many wait as may.
 *
 * One step of the model is one atomic operation of the code on the file.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   PROCESSES=n   default 3
 *   BOUND=n       default 1
 *   MUTANT_...    a protocol broken on purpose: an error must be found
 */

#ifndef PROCESSES
#define PROCESSES 3
#endif
#ifndef BOUND
#define BOUND 1
#endif

byte tickets = 0;               /* the last ticket issued */
byte high = 0;                  /* no place from here on has a waiter */
byte raises = 0;                /* how often it was raised, in the same word */
byte waiters[PROCESSES];
byte joining[PROCESSES];        /* in the same word as waiters */

byte admitted = 0, rejected = 0;

#if defined(MUTANT_WAIT_FOR_NONE) || defined(MUTANT_COUNT_ALL)
#define WAITS_FOR(i) true
#else
#define WAITS_FOR(i) (joining[i] == 0 || joining[i] < ticket)
#endif

proctype process(byte p) {
	byte ticket, i, n, most, was, saw, to;

	d_step { tickets++; ticket = tickets };                         /* add */
#ifndef MUTANT_COUNT_FIRST
	joining[p] = ticket;                                            /* store */
	d_step { high = (high < p + 1 -> p + 1 : high); raises++ };     /* CAS */
#endif

	most = high;                                                    /* load */
	do
	:: atomic { i < most && i != p && WAITS_FOR(i) ->               /* load; a later caller is waited for */
#ifdef MUTANT_COUNT_ALL
		n = n + waiters[i] + (joining[i] != 0 -> 1 : 0);
#else
		n = n + waiters[i] + (joining[i] != 0 && joining[i] < ticket -> 1 : 0);
#endif
		i++ }
	:: i < most && i == p -> i++
	:: i >= most -> break
	od;

	if
	:: n < BOUND -> atomic {
		waiters[p] = 1; joining[p] = 0;                         /* store, of one word */
		admitted++;
		assert(admitted <= BOUND) };
#ifdef MUTANT_COUNT_FIRST
	   d_step { high = (high < p + 1 -> p + 1 : high); raises++ };  /* CAS */
#endif
	:: n >= BOUND -> atomic { joining[p] = 0; rejected++ };         /* store */
	   atomic { was = high; saw = raises; to = was };               /* load */
	   do
	   :: to > 0 && waiters[to-1] == 0 && joining[to-1] == 0 -> to-- /* load */
	   :: to == 0 || waiters[to-1] != 0 || joining[to-1] != 0 -> break
	   od;
	   atomic {
		if
		:: high == was && raises == saw -> high = to            /* CAS */
		:: else
		fi }
	fi
}

init {
	atomic {
		byte p = 0;
		do
		:: p < PROCESSES -> run process(p); p++
		:: else -> break
		od
	};
	admitted + rejected == PROCESSES;
	assert(admitted == (BOUND < PROCESSES -> BOUND : PROCESSES))
}
