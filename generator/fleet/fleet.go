// Package fleet prepares one release for a fleet of devices that have many older ones: it
// counts what the devices have, plans the deltas that are worth their cost, makes them in
// as many processes as there are, and publishes the release when all of them are there.
//
// It has no server, no queue and no database. A plan is a file, and the store of deltas is
// the only memory: any process may die, run twice, or run on another machine. FORMAT.md
// describes both. It knows no terminals and no engines.
package fleet

// Error says what is wrong with an inventory, a plan or a store, and what to do about it.
type Error struct{ Text, Hint string }

func (e *Error) Error() string { return e.Text }

// Advice is the hint.
func (e *Error) Advice() string { return e.Hint }
