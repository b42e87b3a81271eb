package activities

// MaxEager is for tests.
const MaxEager = maxEager

// Eager is how many eager requests are under way that are not slow.
func (a *Activities) Eager() int {
	a.eager.mu.Lock()
	defer a.eager.mu.Unlock()
	return a.eager.taken
}
