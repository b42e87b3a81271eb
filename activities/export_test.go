package activities

// MaxAhead is for tests.
const MaxAhead = maxAhead

// Leading is how many requests are ahead of their workflows.
func (a *Activities) Leading() int {
	a.leading.mu.Lock()
	defer a.leading.mu.Unlock()
	return a.leading.taken
}
