// Package registry lists all limits of a program in one place: what each is for, what it
// is set to, and how much of it is in use.
//
//	var queries = registry.Semaphore("db", 40, "PostgreSQL accepts 50 connections; 10 are for migrations")
//
//	func main() {
//		if err := registry.Default.Load("limits.json"); err != nil {
//			log.Fatal(err) // every problem in the file, with line and column
//		}
//		go registry.Default.Watch(ctx, "limits.json")
//		http.Handle("/debug/sema", registry.Default.Handler())
//		…
//		err := registry.Default.Drain(shutdown)
//	}
//
// Four rules make the list reliable:
//
//   - A name is registered once. A second registration panics, and names both places:
//     two parts of a program that share a limit by accident slow each other down in ways
//     that no code shows.
//   - Each limit has a reason, its why. A number without a reason is changed by the next
//     incident and never changed back.
//   - A file that [Registry.Load] accepts is in force, all of it. A file with any problem
//     changes nothing, and the error lists all its problems. A name that no code has
//     registered is one of them.
//   - What the file can set is what can change while the program runs: capacities, rates
//     and the shares of classes.
//
// Any gate with statistics can be registered by [Registry.Add]: a rate, a fair queue, a
// pool, a semaphore of a host or a fleet, or a gate of your own. Package sema does not
// depend on this package.
//
// A program with one or two limits needs none of this: a variable is enough.
package registry
