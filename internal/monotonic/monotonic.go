// Package monotonic reads the monotonic clock. All packages of Sema that measure durations
// share its epoch, so that one reading serves several of them: a reading costs as much as
// an uncontended acquire.
package monotonic

import "time"

// epoch is what times are relative to. A difference to it is monotonic, and costs half as
// much as time.Now.
var epoch = time.Now()

// Since returns the time that has passed since the epoch. In a testing/synctest bubble,
// where the year is 2000, it is negative.
func Since() time.Duration { return time.Since(epoch) }

// Time returns the time at which Since returned d.
func Time(d time.Duration) time.Time { return epoch.Add(d) }
