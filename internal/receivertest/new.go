package receivertest

import "testing"

// New starts a plain receiver that stops with the test.
func New(t testing.TB) *Receiver {
	t.Helper()
	return NewWith(t, Options{})
}

// NewWith is New with options.
func NewWith(t testing.TB, options Options) *Receiver {
	t.Helper()
	r, err := Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}
