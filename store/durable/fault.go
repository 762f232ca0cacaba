package durable

import "sync/atomic"

// hook is the function that Inject set.
var hook atomic.Pointer[func(name string) error]

// Inject makes every later [Point] call f with the name of the point; f's error
// becomes the error of the step. It is for tests alone: no released program calls it.
// restore ends it.
func Inject(f func(name string) error) (restore func()) {
	old := hook.Swap(&f)
	return func() { hook.Store(old) }
}

// Point is a named place where a test can stop the program or make a step
// fail; without a test it does nothing. The packages above mark their own
// steps with it, such as a call of another program. Package faults stops programs there.
func Point(name string) error {
	if f := hook.Load(); f != nil {
		return (*f)(name)
	}
	return nil
}
