// Package play contains the lessons of the playground: small programs whose workers use the
// gates of Sema while a page shows each step. The gates are the real packages; a lesson adds
// the workers, their pauses and the captions.
//
// A lesson knows no other clock than that of package time. In a browser the page stops,
// slows down and steps that clock (site/files/worker.js); in tests it is the clock of a
// testing/synctest bubble. So rates, leases and the search for deadlocks follow the speed
// that the user has chosen.
//
//	[Lesson]  what can be chosen, and the program
//	[Stage]   one run of a lesson: its workers, and the events that they emit
//	wasm      the program for browsers
//	site      the page, and its handler
//	build     builds what the page loads
package play
