package activities

// MaxEager is for tests.
const MaxEager = maxEager

// Eager is how many eager requests are under way that are not slow.
func (a *Activities) Eager() int { return a.eager.InUse() }
